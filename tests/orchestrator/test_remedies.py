"""The table from status codes to remedies, and that what it answers is carried out by each kind of call."""

from __future__ import annotations

from typing import Any

import grpc
import pytest

from orchestrator.jobs import STAGES, Stage
from orchestrator.remedies import Remedy, failure_of

Code = grpc.StatusCode


class Failed(grpc.RpcError):
    """What a failed call raises, with the parts that are looked at."""

    def __init__(self, code: grpc.StatusCode, details: str | None = "details", reason: str = "") -> None:
        super().__init__()
        self._code, self._details, self._reason = code, details, reason

    def code(self) -> grpc.StatusCode:
        return self._code

    def details(self) -> str | None:
        return self._details

    def trailing_metadata(self) -> Any:
        return (("docexpress-reason", self._reason),) if self._reason else None


@pytest.mark.parametrize(
    ("code", "ingest", "prefill", "compress", "rank", "decode"),
    [
        (Code.INVALID_ARGUMENT, "fail", "fail", "fail", "fail", "fail"),
        (Code.UNIMPLEMENTED, "fail", "fail", "fail", "fail", "fail"),
        (Code.NOT_FOUND, "fail", "ingest", "ingest", "ingest", "ingest"),
        (Code.DATA_LOSS, "fail", "ingest", "ingest", "ingest", "ingest"),
        (Code.FAILED_PRECONDITION, "same", "same", "prefill", "same", "same"),
        (Code.UNAVAILABLE, "same", "same", "prefill", "same", "same"),
        (Code.DEADLINE_EXCEEDED, "same", "same", "prefill", "same", "same"),
        (Code.CANCELLED, "same", "same", "prefill", "same", "same"),
        (Code.RESOURCE_EXHAUSTED, "same", "same", "prefill", "same", "same"),
        (Code.INTERNAL, "same", "same", "prefill", "same", "same"),
        (Code.UNKNOWN, "same", "same", "prefill", "same", "same"),
    ],
)
def test_remedy_of_each_code(
    code: grpc.StatusCode, ingest: str, prefill: str, compress: str, rank: str, decode: str
) -> None:
    found = [failure_of(stage, "w", Failed(code)).remedy.value for stage in STAGES]
    assert found == [ingest, prefill, compress, rank, decode]


@pytest.mark.parametrize("stage", STAGES)
def test_reasons_of_exhaustion_differ(stage: Stage) -> None:
    assert failure_of(stage, "w", Failed(Code.RESOURCE_EXHAUSTED, reason="busy")).remedy is Remedy.WAIT
    budget = failure_of(stage, "w", Failed(Code.RESOURCE_EXHAUSTED, reason="budget"))
    assert (budget.remedy, budget.retryable) == (Remedy.FAIL, True)


def test_only_unreachable_workers_are_avoided() -> None:
    avoided = {
        code for code in Code if code is not Code.OK and failure_of("prefill", "w", Failed(code)).avoid
    }
    assert avoided == {Code.UNAVAILABLE, Code.DEADLINE_EXCEEDED, Code.CANCELLED}


def test_sentence_is_one_line_and_never_empty() -> None:
    assert (
        str(failure_of("prefill", "w1", Failed(Code.INTERNAL, "two\nlines")))
        == "worker w1: INTERNAL: two lines"
    )
    assert str(failure_of("prefill", "w1", Failed(Code.INTERNAL, None))) == "worker w1: INTERNAL: INTERNAL"
