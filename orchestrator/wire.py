"""What the HTTP API answers with, as server and client both know it. JSON objects; times are seconds."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict

from orchestrator.jobs import Kind


class Wire(BaseModel):
    """Read from JSON or from an object with the same attributes; fields of newer versions are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", from_attributes=True)


class JobInfo(Wire):
    """A job as its record stands.

    status    submitted, ingest, prefill, compress, rank, decode, done, failed or cancelled
    segment   the one that is read now, of `segments` (0 until ingest has told)
    document  name of the stored document, to be submitted again
    created, updated  seconds since the epoch
    reason    why it failed, or why a stage was last tried again
    result    the documented result object once the job is done
    """

    id: str
    kind: Kind
    title: str
    question: str | None
    status: str
    stage: str
    segment: int
    segments: int
    model: str
    document: str
    state: str
    tokens_read: int
    created: float
    updated: float
    reason: str
    retryable: bool
    result: dict[str, Any] | None

    @property
    def finished(self) -> bool:
        return self.status in ("done", "failed", "cancelled")


class StateInfo(Wire):
    """A stored state. `size` in bytes, `expires_in` in seconds unless it is read before; `cache_entries` per
    KV head and layer; `kept` marks the final state of a job."""

    name: str
    size: int
    created: float
    expires_in: float
    kept: bool
    tokens_seen: int
    cache_entries: int
    model: str
    meta: dict[str, Any]


class WorkerInfo(Wire):
    """A kernel worker. `window` in tokens; `capacity` calls are computed at once, and `decode_rows` texts are
    written together beside them; `load` is calls of both kinds that run or wait."""

    id: str
    model_name: str
    device: str
    window: int
    capacity: int
    decode_rows: int
    load: int
    draining: bool
    version: str


class EvidenceBinInfo(Wire):
    """A part of a document, characters [start, end) of its text. `entries` of its `tokens` are kept in the
    state, with `weight` altogether: means over all layers and KV heads."""

    start: int
    end: int
    tokens: int
    weight: float
    entries: float


class EvidenceInfo(Wire):
    """What of a document a state holds: equal parts, in order, which together are the document."""

    bins: list[EvidenceBinInfo]


class TextInfo(Wire):
    """Characters [start, end) of a document's text."""

    start: int
    end: int
    text: str


class ErrorInfo(Wire):
    """The object under "error" of every answer from 400 on; `param` names the field that is wrong."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None
