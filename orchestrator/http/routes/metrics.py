"""What Prometheus reads: sums over all tenants, in its text format. `guard.py` says who may."""

from __future__ import annotations

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from orchestrator.http.context import TheApi

router = APIRouter(tags=["health"])


@router.get("/metrics", response_class=Response)
def metrics(api: TheApi) -> Response:
    """Where keys are required, it wants the token for metrics as its bearer token."""
    return Response(generate_latest(api.exporter.registry), media_type=CONTENT_TYPE_LATEST)
