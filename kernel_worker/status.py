"""The one table from exceptions to gRPC status codes, and the one place where answers become errors."""

from __future__ import annotations

import logging
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import grpc
import torch

from cache_store import errors as store
from cache_store.log_format import error_name
from kernel_worker import errors as worker
from kernel_worker.calls import Call

log = logging.getLogger(__name__)

# Trailing metadata of RESOURCE_EXHAUSTED: what is spent. "busy" passes, "budget" does not pass by itself.
REASON_KEY = "docexpress-reason"


class Status(NamedTuple):
    """`details` None: the exception's own sentence."""

    code: grpc.StatusCode
    details: str | None = None
    reason: str | None = None


_C = grpc.StatusCode
# The first class that an exception belongs to decides.
TABLE: tuple[tuple[type[Exception], Status], ...] = (
    (worker.InvalidRequest, Status(_C.INVALID_ARGUMENT)),
    (worker.ModelUnsupported, Status(_C.INVALID_ARGUMENT)),  # a text that the tokenizer cannot write
    (worker.StateMismatch, Status(_C.FAILED_PRECONDITION)),
    (worker.LeaseLost, Status(_C.FAILED_PRECONDITION)),
    (worker.WorkerBusy, Status(_C.RESOURCE_EXHAUSTED, reason="busy")),
    (worker.WorkerDraining, Status(_C.UNAVAILABLE)),
    (worker.CallerGone, Status(_C.CANCELLED)),
    (store.ObjectMissing, Status(_C.NOT_FOUND)),
    (store.ObjectDamaged, Status(_C.DATA_LOSS)),
    (store.FormatMismatch, Status(_C.FAILED_PRECONDITION)),
    (store.BudgetExceeded, Status(_C.RESOURCE_EXHAUSTED, reason="budget")),
    (store.StoreUnavailable, Status(_C.UNAVAILABLE)),
    (
        torch.OutOfMemoryError,
        Status(
            _C.RESOURCE_EXHAUSTED, "The device is out of memory; use smaller segments or a smaller budget."
        ),
    ),
    (Exception, Status(_C.INTERNAL, "The worker failed unexpectedly; its log says where.")),
)
LONGEST_DETAILS = 1000  # characters; gRPC puts them into a header, whose size is limited


def status_of(error: Exception) -> Status:
    """The code that says what to do next, with a sentence for the user."""
    status = next(status for kind, status in TABLE if isinstance(error, kind))
    sentence = status.details or " ".join(str(error).split())
    return status._replace(details=sentence[:LONGEST_DETAILS])


@contextmanager
def answering(context: grpc.ServicerContext) -> Iterator[Call]:
    """The call as the stages see it. An exception inside ends it with the status of the table."""
    call = Call()
    if not context.add_callback(call.end):
        call.end()
    try:
        yield call
    except Exception as error:
        status = status_of(error)
        if status.code is grpc.StatusCode.INTERNAL:
            log.error("%s\n%s", error_name(error), "".join(traceback.format_tb(error.__traceback__)))
        if status.reason is not None:
            context.set_trailing_metadata(((REASON_KEY, status.reason),))
        context.abort(status.code, status.details or "")
    finally:
        call.end()
