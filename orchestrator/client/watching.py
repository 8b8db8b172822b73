"""The events of a job out of lines of text, each once, however often the connection is made anew."""

from __future__ import annotations

import json

from orchestrator.client.errors import JobCancelled, JobFailed, Unreachable
from orchestrator.events import Event
from orchestrator.jobs import JobResult

TRIES = 6  # connections in a row that bring nothing
PAUSE_SECONDS = 0.25


class Watching:
    """Feed it every line of every connection. `last_id` is where to go on."""

    def __init__(self, after: str = "0-0") -> None:
        self.last_id = after
        self.ended = False
        self._fields: dict[str, str] = {}
        self._next_token: int | None = None
        self._failures = 0

    @property
    def headers(self) -> dict[str, str]:
        return {"Last-Event-ID": self.last_id}

    def line(self, line: str) -> Event | None:
        """The event that the line completes, unless it is known already."""
        if line:
            name, _, value = line.partition(":")
            if name:
                self._fields[name] = value.removeprefix(" ")
            return None
        fields, self._fields = self._fields, {}
        if "id" not in fields or "data" not in fields:  # a comment, or the server's own failure
            return None
        return self._new(Event(fields["id"], fields.get("event", "message"), json.loads(fields["data"])))

    def broken(self, error: Exception | None) -> float:
        """Notes a connection that ended too early; how many seconds to wait. Raises Unreachable."""
        self._fields = {}
        self._failures += 1
        if self._failures >= TRIES:
            raise Unreachable(
                f"the events of the job stopped: {error or 'the server closed the stream'}"
            ) from error
        return PAUSE_SECONDS * 2.0 ** (self._failures - 1)

    def _new(self, event: Event) -> Event | None:
        self._failures = 0
        self.last_id = event.id
        self.ended = event.terminal
        if event.kind == "token":
            index = int(event.data["index"])
            if self._next_token is not None and index < self._next_token:
                return None
            self._next_token = index + 1
        return event


def result_of(job_id: str, last: Event | None) -> JobResult:
    """The result that a job's last event tells. Raises JobFailed, JobCancelled, Unreachable."""
    if last is not None and last.kind == "done":
        return JobResult.from_json(last.data["result"])
    if last is not None and last.kind == "failed":
        data = last.data
        raise JobFailed(
            job_id, data["reason"], retryable=data["retryable"], invalid=data.get("invalid", False)
        )
    if last is not None and last.kind == "cancelled":
        raise JobCancelled(job_id)
    raise Unreachable("the events of the job stopped")
