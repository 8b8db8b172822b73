"""What a command works with: the stack it needs and the service on top of it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from orchestrator.cli.display import Display
from orchestrator.embedded.home import WHOLE_STACK
from orchestrator.embedded.session import Connection, connect
from orchestrator.embedded.stack import StackOptions
from orchestrator.service import Service
from orchestrator.settings import Settings


@dataclass(frozen=True)
class Session:
    """A service that answers, and the stack under it."""

    service: Service
    connection: Connection

    def need_workers(self, model: str) -> None:
        """Make an own stack work on jobs with `model`. Raises EmbeddedError."""
        self.connection.need(WHOLE_STACK, model)


@contextmanager
def open_session(
    display: Display, parts: frozenset[str], *, begin: frozenset[str] | None = None
) -> Iterator[Session]:
    """Reach or start a stack with `parts` (an own one with `begin` at first), and take an own one down.

    Raises EmbeddedError, OrchestratorError, StoreError, ValidationError.
    """
    started = time.time()
    try:
        with connect(
            parts,
            StackOptions(),
            display.status,
            begin=begin,
            busy=lambda url: _works_for_others(url, started),
        ) as connection:
            with Service(_settings(connection)) as service:
                service.ping()
                yield Session(service, connection)
            if connection.stack is not None:
                display.status("stopping")
    finally:
        display.close()


def _settings(connection: Connection) -> Settings:
    if not connection.embedded:
        return Settings()
    return Settings(redis_url=connection.redis_url, cache_url=connection.redis_url)


def _works_for_others(redis_url: str, since: float) -> bool:
    """Whether a job that was submitted while this stack was up still runs."""
    with Service(Settings(redis_url=redis_url, cache_url=redis_url)) as service:
        return any(not job.finished and job.created >= since for job in service.jobs())
