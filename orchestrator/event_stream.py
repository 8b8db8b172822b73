"""Reads a job's events from Redis: from any point, live, and without a gap in the tokens."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

from orchestrator.connection import job_store_errors
from orchestrator.errors import OptionError
from orchestrator.events import Event
from orchestrator.job_keys import JobKeys
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job

_BLOCK_MS = 1000
_BATCH = 500
_EVENT_ID = r"\d{1,19}-\d{1,19}"


def follow(jobs: JobStore, tenant: str, job_id: str, after: str = "0-0") -> Iterator[Event]:
    """What `watch` tells, without the pauses."""
    return (event for event in watch(jobs, tenant, job_id, after) if event is not None)


def check_event_id(after: str) -> str:
    """The id itself. Raises OptionError."""
    if not re.fullmatch(_EVENT_ID, after):
        raise OptionError(f"{after[:80]!r} is not the id of an event")
    return after


def watch(jobs: JobStore, tenant: str, job_id: str, after: str = "0-0") -> Iterator[Event | None]:
    """Events after an id as they come, until the terminal one; None when nothing has come for a second.

    Raises UnknownJob, OptionError (not an event's id), JobStoreUnavailable.

    The stream is bounded, so old events may have left it. Tokens among them are taken from the job's list of
    tokens and told under the id of the event before the gap: whoever takes up the watching there loses none.
    If the event `after` itself has left the stream, nobody knows which tokens were told before it, and they
    are told again.
    """
    check_event_id(after)
    jobs.load(tenant, job_id)
    keys = JobKeys(tenant, job_id)
    gaps = _Gaps(jobs, keys, _next_token(jobs.client, keys, after))
    while True:
        finished = jobs.load(tenant, job_id)
        batch = _read(jobs.client, keys.events, after, block=not finished.finished)
        if not batch and finished.finished:
            batch = [terminal_event(finished, after)]
        if not batch:
            yield None
        for event in batch:
            yield from gaps.before(event, after)
            yield event
            if event.terminal:
                return
            after = event.id


def terminal_event(job: Job, event_id: str) -> Event:
    """What the stream of a finished job ends with, made from its record."""
    if job.status == "done":
        return Event(event_id, "done", {"result": job.result})
    if job.status == "failed":
        return Event(event_id, "failed", failure(job.reason, job.retryable, job.invalid))
    return Event(event_id, "cancelled", {})


def failure(reason: str, retryable: bool, invalid: bool) -> dict[str, str | bool]:
    return {"reason": reason, "retryable": retryable, "invalid": invalid}


class _Gaps:
    """Knows which token comes next, and fetches those that the stream has lost."""

    def __init__(self, jobs: JobStore, keys: JobKeys, following: int) -> None:
        self._jobs = jobs
        self._keys = keys
        self._next = following

    def before(self, event: Event, last_id: str) -> Iterator[Event]:
        """The lost tokens that belong before `event`, under the id of the event told last."""
        if event.kind == "token":
            end = int(event.data["index"])
        elif event.terminal:
            end = -1
        else:
            return
        if end < 0 or end > self._next:
            last = end - 1 if end > 0 else -1
            texts = self._jobs.token_texts(self._keys.tenant, self._keys.job_id, self._next, last)
            for index, text in enumerate(texts, self._next):
                yield Event(last_id, "token", {"index": index, "text": text})
        self._next = max(self._next, end + 1)


def _next_token(client: Any, keys: JobKeys, after: str) -> int:
    """The index that follows the last token told up to the event `after`; 0 when that is not known."""
    if after == "0-0":
        return 0
    with job_store_errors(client):
        for _, fields in client.xrevrange(keys.events, max=after, count=_BATCH):
            if fields[b"kind"] == b"token":
                return int(json.loads(fields[b"data"])["index"]) + 1
    return 0


def _read(client: Any, stream: str, after: str, *, block: bool) -> list[Event]:
    with job_store_errors(client):
        reply = client.xread({stream: after}, count=_BATCH, block=_BLOCK_MS if block else None)
    entries = [entry for _, found in reply for entry in found]
    return [
        Event(event_id.decode(), fields[b"kind"].decode(), json.loads(fields[b"data"]))
        for event_id, fields in entries
    ]
