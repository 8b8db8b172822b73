"""The kernel workers, without their addresses: those are nobody's business but the orchestrator's."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.http.context import TheService
from orchestrator.wire import WorkerInfo

router = APIRouter(prefix="/v1/workers", tags=["workers"])


@router.get("")
def workers(service: TheService) -> list[WorkerInfo]:
    return [WorkerInfo.model_validate(worker) for worker in service.workers()]
