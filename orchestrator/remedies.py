"""What to do when a stage's call fails: one table, status code and stage to remedy.

SAME     the same stage again, on another worker if there is one
PREFILL  back to the prefill of the same segment
INGEST   back to ingest, which finds the furthest state that is still stored
WAIT     the same stage a little later; does not count as a failed try
FAIL     the job fails at once
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Mapping
from typing import Any

import grpc

from orchestrator.errors import StageError, WorkerInsecure
from orchestrator.jobs import Stage
from orchestrator.worker_tls import refused_certificate

# RESOURCE_EXHAUSTED has several reasons, and the worker tells which in its trailing metadata: all its slots
# are taken ("busy"), or the tenant's byte budget is spent ("budget"). Any other counts as a failed try.
REASON_KEY = "docexpress-reason"
BUSY = "busy"
BUDGET = "budget"


class Remedy(enum.Enum):
    SAME = "same"
    PREFILL = "prefill"
    INGEST = "ingest"
    WAIT = "wait"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True, slots=True)
class _Rule:
    """The remedy, what is different in some stages, and whether the worker is to be avoided for a while."""

    remedy: Remedy
    instead: Mapping[Stage, Remedy] = dataclasses.field(default_factory=dict)
    avoid: bool = False


_LEASE: Mapping[Stage, Remedy] = {"compress": Remedy.PREFILL}  # the segment's KV is there or nowhere
_DOCUMENT: Mapping[Stage, Remedy] = {"ingest": Remedy.FAIL}  # there is nothing left to read it from
_C = grpc.StatusCode
_TABLE: Mapping[grpc.StatusCode, _Rule] = {
    _C.INVALID_ARGUMENT: _Rule(Remedy.FAIL),
    _C.UNIMPLEMENTED: _Rule(Remedy.FAIL),
    _C.UNAUTHENTICATED: _Rule(Remedy.FAIL),
    _C.PERMISSION_DENIED: _Rule(Remedy.FAIL),
    _C.NOT_FOUND: _Rule(Remedy.INGEST, _DOCUMENT),
    _C.DATA_LOSS: _Rule(Remedy.INGEST, _DOCUMENT),
    _C.FAILED_PRECONDITION: _Rule(Remedy.SAME, _LEASE),
    _C.UNAVAILABLE: _Rule(Remedy.SAME, _LEASE, avoid=True),
    _C.DEADLINE_EXCEEDED: _Rule(Remedy.SAME, _LEASE, avoid=True),
    _C.CANCELLED: _Rule(Remedy.SAME, _LEASE, avoid=True),
}
_OTHER = _Rule(Remedy.SAME, _LEASE)
_GONE = (_C.NOT_FOUND, _C.DATA_LOSS)


class StageFailed(StageError):
    """A stage did not succeed. `str(error)` is one sentence.

    Attributes: `remedy`; `invalid`, whether the request itself was refused; `retryable`, whether a job that
    fails for this may succeed later; `avoid`, whether the worker should prove that it lives before it is
    given work again.
    """

    def __init__(
        self,
        reason: str,
        remedy: Remedy,
        *,
        invalid: bool = False,
        retryable: bool = True,
        avoid: bool = False,
    ) -> None:
        super().__init__(reason)
        self.remedy = remedy
        self.invalid = invalid
        self.retryable = retryable
        self.avoid = avoid


def failure_of(stage: Stage, worker_id: str, error: grpc.RpcError) -> StageFailed:
    """What a failed call of a stage means."""
    code = error.code()
    details = " ".join((error.details() or "").split()) or code.name
    if code is _C.INVALID_ARGUMENT:
        return StageFailed(details, Remedy.FAIL, invalid=True, retryable=False)
    reason = _reason(error) if code is _C.RESOURCE_EXHAUSTED else None
    if reason == BUDGET:
        return StageFailed(details, Remedy.FAIL)
    if reason == BUSY:
        return StageFailed(details, Remedy.WAIT)
    rule = _TABLE.get(code, _OTHER)
    remedy = rule.instead.get(stage, rule.remedy)
    sentence = f"worker {worker_id}: {code.name}: {details}"
    if code is _C.UNAVAILABLE and refused_certificate(details):
        sentence = (
            f"worker {worker_id} shows a certificate that DOCEXPRESS_GRPC_CA has not signed, or that carries"
            f" neither its address nor DOCEXPRESS_GRPC_SERVER_NAME ({details})"
        )
    if stage == "ingest" and code in _GONE:
        sentence = f"the document is no longer stored, submit it again ({details})"
    return StageFailed(sentence, remedy, retryable=remedy is not Remedy.FAIL, avoid=rule.avoid)


def insecure(stage: Stage, error: WorkerInsecure) -> StageFailed:
    """What it means that a worker must not, or cannot, be called: as if it did not answer."""
    rule = _TABLE[_C.UNAVAILABLE]
    return StageFailed(str(error), rule.instead.get(stage, rule.remedy), avoid=rule.avoid)


def _reason(error: grpc.RpcError) -> str | None:
    metadata: Any = error.trailing_metadata()
    for key, value in metadata or ():
        if key == REASON_KEY:
            return str(value)
    return None
