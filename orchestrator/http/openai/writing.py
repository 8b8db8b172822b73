"""A job as a stream of text, cut at stop sequences."""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from typing import TypeAlias

from anyio.to_thread import run_sync

from orchestrator.errors import OrchestratorError
from orchestrator.events import Event
from orchestrator.http.context import Api
from orchestrator.http.errors import Problem, failed_job
from orchestrator.http.openai.stops import StopFilter
from orchestrator.http.streams import watch
from orchestrator.service import Service

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Ending:
    """How it ended. `prompt_tokens` are those of the document, `cached_tokens` of them were not read anew."""

    finish_reason: str
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int


# Text as it comes, "" about once a second while there is none, and the ending last.
Written: TypeAlias = str | Ending


async def write(api: Api, service: Service, job_id: str, stops: Sequence[str]) -> AsyncGenerator[Written]:
    """Raises Problem when the job fails or is cancelled, OrchestratorError when Redis is away."""
    writer = _Writer(stops)
    with api.stream():
        async with aclosing(watch(api, service, job_id)) as events:
            async for event in events:
                yield writer.text(event)
                if writer.ended:
                    break
    yield await run_sync(_ending, service, job_id, writer)


def abandon(service: Service, job_id: str) -> None:
    """Cancels a job whose text nobody reads on; one that has ended stays as it is."""
    try:
        service.cancel(job_id)
    except OrchestratorError as error:
        _log.warning("job %s goes on though nobody reads it: %s", job_id, error)


class _Writer:
    """Makes text of events."""

    def __init__(self, stops: Sequence[str]) -> None:
        self._filter = StopFilter(stops)
        self.tokens = 0
        self.finish_reason = "stop"
        self._job_ended = False

    @property
    def ended(self) -> bool:
        return self._job_ended or self._filter.stopped

    def text(self, event: Event | None) -> str:
        """The text that an event adds. Raises Problem for the end of a job that has not written all."""
        if event is None:
            return ""
        self._job_ended = event.terminal
        if event.kind == "failed":
            data = event.data
            raise failed_job(data["reason"], retryable=data["retryable"], invalid=data.get("invalid", False))
        if event.kind == "cancelled":
            raise Problem(409, "The job was cancelled.", code="job_cancelled")
        if event.kind == "done":
            self.finish_reason = str(event.data["result"]["finish_reason"])
            return self._filter.rest()
        if event.kind != "token" or event.data["index"] < self.tokens:
            return ""
        self.tokens = int(event.data["index"]) + 1
        return self._filter.add(str(event.data["text"]))


def _ending(service: Service, job_id: str, writer: _Writer) -> Ending:
    job = service.job(job_id)
    return Ending(
        finish_reason=writer.finish_reason,
        prompt_tokens=job.token_count,
        cached_tokens=max(0, job.token_count - job.prefill_tokens),
        completion_tokens=writer.tokens,
    )
