"""What each exception means over HTTP: a status code and an error object. The only table of its kind.

    Problem    anything the API itself refuses; everything else is turned into one by `problem_of`

Every body has the form that OpenAI's API has: {"error": {"message", "type", "param", "code"}}.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import ValidationError
from starlette.exceptions import HTTPException

from cache_store import errors as store
from orchestrator import errors

BUSY_SECONDS = 5
FULL_SECONDS = 60  # a full budget has room again when something stored expires or is deleted
_RETRY_AFTER = {429: FULL_SECONDS, 503: BUSY_SECONDS}

_CODES: tuple[tuple[type[Exception], int, str], ...] = (
    (errors.DocumentError, 400, "document_unreadable"),
    (errors.OptionError, 400, "invalid_value"),
    (errors.UnknownJob, 404, "job_not_found"),
    (errors.NotFinished, 409, "job_not_finished"),
    (errors.JobCancelled, 409, "job_cancelled"),
    (errors.JobStoreUnavailable, 503, "store_unavailable"),
    (errors.WorkerUnavailable, 503, "worker_unavailable"),
    (store.ObjectMissing, 404, "not_found"),
    (store.ObjectDamaged, 404, "not_found"),
    (store.FormatMismatch, 409, "format_mismatch"),
    (store.TransferError, 400, "invalid_file"),
    (store.StoreFull, 507, "store_full"),
    (store.LargerThanBudget, 413, "larger_than_byte_budget"),
    (store.BudgetExceeded, 429, "byte_budget_exceeded"),
    (store.StoreUnavailable, 503, "store_unavailable"),
)
_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
}


class Problem(Exception):
    """A refusal: `message` is one sentence, `param` the field's name, `retry_after` in seconds."""

    def __init__(
        self,
        status: int,
        message: str,
        *,
        code: str,
        param: str | None = None,
        retry_after: int | None = None,
    ) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.code = code
        self.param = param
        self.retry_after = retry_after

    def body(self) -> dict[str, Any]:
        kind = _TYPES.get(self.status, "invalid_request_error" if self.status < 500 else "server_error")
        return {"error": {"message": self.message, "type": kind, "param": self.param, "code": self.code}}

    def response(self) -> JSONResponse:
        headers = {} if self.retry_after is None else {"Retry-After": str(self.retry_after)}
        if self.status == 401:
            headers["WWW-Authenticate"] = "Bearer"
        if self.status == 413:
            headers["Connection"] = "close"
        return JSONResponse(self.body(), self.status, headers)


def problem_of(error: Exception) -> Problem:
    """The problem that an exception is; one that is in no table is an internal error, and says no more."""
    if isinstance(error, Problem):
        return error
    if isinstance(error, errors.JobFailed):
        return failed_job(error.reason, retryable=error.retryable, invalid=error.invalid)
    if isinstance(error, ValidationError | RequestValidationError):
        return _invalid(error.errors())
    if isinstance(error, HTTPException):
        return _plain(error)
    for kind, status, code in _CODES:
        if isinstance(error, kind):
            param = error.option if isinstance(error, errors.OptionError) else None
            return Problem(
                status,
                str(error),
                code=code,
                param=param,
                retry_after=_RETRY_AFTER.get(status),
            )
    return Problem(500, "docexpress failed in an unexpected way.", code="internal_error")


def failed_job(reason: str, *, retryable: bool, invalid: bool) -> Problem:
    """What a failed job is to whoever asked for its result."""
    if invalid:
        return Problem(400, reason, code="job_invalid")
    if retryable:
        return Problem(503, reason, code="job_failed", retry_after=BUSY_SECONDS)
    return Problem(500, reason, code="job_failed")


def install(app: FastAPI) -> None:
    """Makes the application answer every exception of the table with its problem."""
    for kind in (
        Problem,
        errors.OrchestratorError,
        store.StoreError,
        ValidationError,
        RequestValidationError,
        HTTPException,
        Exception,
    ):
        app.add_exception_handler(kind, _answer)


async def _answer(request: Request, error: Exception) -> JSONResponse:
    return problem_of(error).response()


def _invalid(problems: Sequence[Any]) -> Problem:
    """The first thing that is wrong with a request, with the name of the field."""
    first = problems[0]
    places = [str(part) for part in first["loc"] if part not in ("body", "query", "path")]
    param = ".".join(places) or None
    message = str(first["msg"]).removeprefix("Value error, ")
    return Problem(400, f"{param}: {message}" if param else message, code="invalid_value", param=param)


def _plain(error: HTTPException) -> Problem:
    code = {404: "not_found", 405: "method_not_allowed"}.get(error.status_code, "invalid_request")
    if error.status_code == 404 and error.detail == "Not Found":
        return Problem(404, "There is nothing at this address.", code=code)
    return Problem(error.status_code, str(error.detail), code=code)
