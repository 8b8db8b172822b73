"""Whether this process lives, and whether a job that is sent now would be worked on. Needs no key."""

from __future__ import annotations

from fastapi import APIRouter

from orchestrator.http.context import TheApi
from orchestrator.http.errors import Problem

router = APIRouter(tags=["health"])


@router.get("/health")
async def health() -> dict[str, str]:
    """This process answers."""
    return {"status": "ok"}


@router.get("/ready")
def ready(api: TheApi) -> dict[str, str]:
    """Both stores answer, an orchestrator takes messages, and a worker is registered (which has run a kernel
    before it registered)."""
    api.service.ping()
    if not api.service.orchestrators():
        raise _unready("No orchestrator takes jobs from the queues.")
    if not api.service.workers():
        raise _unready("No kernel worker is registered.")
    return {"status": "ready"}


def _unready(message: str) -> Problem:
    return Problem(503, message, code="not_ready", retry_after=5)
