"""What the routes work with: made once when the server starts, reached through the request."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated

import anyio
from fastapi import Depends, Request

from orchestrator.api_keys import ApiKeys
from orchestrator.http.errors import Problem
from orchestrator.http.settings import ApiSettings
from orchestrator.service import Service
from orchestrator.telemetry.exporter import Exporter


@dataclasses.dataclass(slots=True)
class Api:
    """Shared by all requests of the process: jobs are watched in `threads`, files are read in `readers`."""

    settings: ApiSettings
    service: Service
    keys: ApiKeys
    exporter: Exporter
    threads: anyio.CapacityLimiter
    readers: anyio.CapacityLimiter
    streams: int = 0

    @contextmanager
    def stream(self) -> Iterator[None]:
        """Around the watching of one job. Raises Problem 503 when too many are watched."""
        if self.streams >= self.settings.streams_limit:
            raise Problem(
                503,
                f"This server already watches {self.streams} jobs, as many as it may.",
                code="overloaded",
                retry_after=self.settings.retry_after_seconds,
            )
        self.streams += 1
        try:
            yield
        finally:
            self.streams -= 1


@dataclasses.dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, as `guard.py` found out."""

    tenant: str
    key_id: str | None = None


def api_of(request: Request) -> Api:
    api: Api = request.app.state.api
    return api


def service_of(request: Request) -> Service:
    """The service as the caller's tenant sees it; a request that nobody has looked at fails."""
    caller: Caller = request.state.caller
    return api_of(request).service.of_tenant(caller.tenant)


def admitted(request: Request) -> Service:
    """The same, for a request that starts a job. Raises Problem 429 or 503 when there are too many."""
    settings, service = api_of(request).settings, service_of(request)
    own, total = service.unfinished()
    wait = settings.retry_after_seconds
    if own >= settings.unfinished_jobs_limit:
        message = f"{own} of your jobs are unfinished, as many as may be; wait until one has ended."
        raise Problem(429, message, code="too_many_jobs", retry_after=wait)
    if total >= settings.total_unfinished_jobs_limit:
        raise Problem(503, "Too many jobs are unfinished; try again.", code="overloaded", retry_after=wait)
    return service


# FastAPI runs these functions in its threads, because they talk to Redis.
TheApi = Annotated[Api, Depends(api_of)]
TheService = Annotated[Service, Depends(service_of)]
Admitted = Annotated[Service, Depends(admitted)]
