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
    """Both stores answer, an orchestrator takes messages, and a worker takes work.

    A worker is registered only while its device passes a probe, a small kernel that is run every 2 seconds.
    """
    api.service.ping()
    if not api.service.orchestrators():
        raise _unready("No orchestrator takes jobs from the queues.")
    if all(worker.draining for worker in api.service.workers()):
        raise _unready("No kernel worker takes work.")
    return {"status": "ready"}


def _unready(message: str) -> Problem:
    return Problem(503, message, code="not_ready", retry_after=5)
