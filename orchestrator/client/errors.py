"""What can go wrong for a client.

ClientError
├── Unreachable       no answer: refused, lost or too late
├── ApiError          an answer that says no; carries status, code, param, retry_after
│   ├── BadRequest    400, 409, 413, 415, 422: the request has to change
│   ├── NotAllowed    401, 403
│   ├── NotFound      404
│   ├── Busy          429, 503: the same request may succeed after `retry_after` seconds
│   └── ServerFailed  any other 5xx
├── JobFailed         the job one waits for has failed; carries reason, retryable, invalid
└── JobCancelled      the job one waits for was cancelled
"""

from __future__ import annotations

import httpx
from pydantic import ValidationError

from orchestrator.wire import ErrorInfo


class ClientError(Exception):
    """Root of the tree; `str(error)` is one sentence."""


class Unreachable(ClientError):
    """The server did not answer, or stopped in the middle."""


class ApiError(ClientError):
    """The server refused. `param` names the field that is wrong, `retry_after` is in seconds."""

    def __init__(self, status: int, info: ErrorInfo, retry_after: float | None) -> None:
        super().__init__(info.message)
        self.status = status
        self.code = info.code
        self.param = info.param
        self.retry_after = retry_after


class BadRequest(ApiError):
    """The request has to change."""


class NotAllowed(ApiError):
    """No API key, or not a valid one."""


class NotFound(ApiError):
    """No such job, state or address."""


class Busy(ApiError):
    """The same request may succeed later."""


class ServerFailed(ApiError):
    """The server could not do it."""


class JobFailed(ClientError):
    """`retryable`: the same job may succeed later; `invalid`: the request itself was refused."""

    def __init__(self, job_id: str, reason: str, *, retryable: bool, invalid: bool) -> None:
        super().__init__(f"job {job_id} failed: {reason}")
        self.job_id = job_id
        self.reason = reason
        self.retryable = retryable
        self.invalid = invalid


class JobCancelled(ClientError):
    """Somebody cancelled the job."""

    def __init__(self, job_id: str) -> None:
        super().__init__(f"job {job_id} was cancelled")
        self.job_id = job_id


_KINDS: dict[int, type[ApiError]] = {
    401: NotAllowed,
    403: NotAllowed,
    404: NotFound,
    429: Busy,
    503: Busy,
}


def error_of(response: httpx.Response) -> ApiError:
    """The error that a response of status 400 or more is; its body must have been read."""
    try:
        info = ErrorInfo.model_validate(response.json()["error"])
    except (ValueError, KeyError, TypeError, ValidationError):
        info = ErrorInfo(message=f"The server answered with status {response.status_code}.", type="unknown")
    status = response.status_code
    after = response.headers.get("Retry-After", "")
    kind = _KINDS.get(status, BadRequest if status < 500 else ServerFailed)
    return kind(status, info, float(after) if after.isdigit() else None)
