"""Every call of the API as data: what to send and how to read the answer. Both clients send these."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable, Mapping
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter

from orchestrator.jobs import JobOptions
from orchestrator.wire import EvidenceInfo, JobInfo, StateInfo, TextInfo, WorkerInfo

T = TypeVar("T")
DEFAULT_URL = "http://127.0.0.1:8000"
TIMEOUT_SECONDS = 60.0
DOCUMENT_CHARACTERS = 16384  # the most that one answer holds
# The server sends a comment at least every ten seconds by default.
STREAM_TIMEOUT_SECONDS = 60.0

_JOB = TypeAdapter(JobInfo).validate_json
_JOBS = TypeAdapter(list[JobInfo]).validate_json
_EVIDENCE = TypeAdapter(EvidenceInfo).validate_json
_TEXT = TypeAdapter(TextInfo).validate_json
_STATE = TypeAdapter(StateInfo).validate_json
_STATES = TypeAdapter(list[StateInfo]).validate_json
_WORKERS = TypeAdapter(list[WorkerInfo]).validate_json
_TEXT_OPTIONS = ("max_new_tokens", "seed", "temperature", "top_p", "repetition_penalty", "reread")


@dataclasses.dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """`arguments` go to httpx's `request`; `read` makes the result from the body of the answer."""

    method: str
    path: str
    read: Callable[[bytes], T]
    arguments: Mapping[str, Any] = dataclasses.field(default_factory=dict)


def submit_text(text: str, title: str | None, options: JobOptions | None) -> Call[JobInfo]:
    body = {"text": text, "title": title} | _given(options)
    return Call("POST", "/v1/jobs", _JOB, {"json": body})


def submit_file(data: bytes, name: str, options: JobOptions | None) -> Call[JobInfo]:
    fields = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in _given(options).items()
        if value is not None
    }
    return Call("POST", "/v1/jobs", _JOB, {"data": fields, "files": {"file": (name, data)}})


def submit_stored(document: str, options: JobOptions | None) -> Call[JobInfo]:
    return Call("POST", "/v1/jobs", _JOB, {"json": {"document": document} | _given(options)})


def ask(job_id: str, question: str, options: JobOptions | None) -> Call[JobInfo]:
    given = {name: value for name, value in _given(options).items() if name in _TEXT_OPTIONS}
    return Call("POST", f"/v1/jobs/{job_id}/ask", _JOB, {"json": {"question": question} | given})


def jobs(limit: int) -> Call[list[JobInfo]]:
    return Call("GET", "/v1/jobs", _JOBS, {"params": {"limit": limit}})


def job(job_id: str) -> Call[JobInfo]:
    return Call("GET", f"/v1/jobs/{job_id}", _JOB)


def cancel(job_id: str) -> Call[JobInfo]:
    return Call("DELETE", f"/v1/jobs/{job_id}", _JOB)


def remove(job_id: str) -> Call[None]:
    return Call("DELETE", f"/v1/jobs/{job_id}/record", lambda body: None)


def evidence(job_id: str, bins: int) -> Call[EvidenceInfo]:
    return Call("GET", f"/v1/jobs/{job_id}/evidence", _EVIDENCE, {"params": {"bins": bins}})


def document_text(job_id: str, start: int, count: int) -> Call[TextInfo]:
    params = {"start": start, "count": count}
    return Call("GET", f"/v1/jobs/{job_id}/document", _TEXT, {"params": params})


def states() -> Call[list[StateInfo]]:
    return Call("GET", "/v1/states", _STATES)


def state(name: str) -> Call[StateInfo]:
    return Call("GET", f"/v1/states/{name}", _STATE)


def import_state(content: Any) -> Call[StateInfo]:
    """`content` is an iterator of bytes, an asynchronous one for the asynchronous client."""
    headers = {"Content-Type": "application/octet-stream"}
    return Call("POST", "/v1/states/import", _STATE, {"content": content, "headers": headers})


def delete_state(name: str) -> Call[None]:
    return Call("DELETE", f"/v1/states/{name}", lambda body: None)


def workers() -> Call[list[WorkerInfo]]:
    return Call("GET", "/v1/workers", _WORKERS)


def ready() -> Call[None]:
    return Call("GET", "/ready", lambda body: None)


def headers(api_key: str | None) -> dict[str, str]:
    return {} if api_key is None else {"Authorization": f"Bearer {api_key}"}


def _given(options: JobOptions | None) -> dict[str, Any]:
    """Without options the server's own defaults hold."""
    return {} if options is None else options.to_json()
