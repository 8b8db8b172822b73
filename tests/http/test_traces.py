"""One trace goes from a request through Celery to the calls of a worker, and tells no text."""

from __future__ import annotations

import secrets
import sys
from contextlib import suppress

import httpx
import pytest

from cache_store.tracing import TracesNotInstalled, carrier, set_up, span
from tests.http.spans import Spans
from tests.http.stack import OPTIONS, text_of
from tests.http.test_jobs import error, finished
from tests.orchestrator.harness import until

STAGES = ("ingest", "prefill", "compress", "decode")


def fresh() -> tuple[str, str]:
    """The ids of a trace and of a span in it, as some client has begun them."""
    return secrets.token_hex(16), secrets.token_hex(8)


def test_one_trace_spans_request_stages_and_calls(http: httpx.Client, spans: Spans) -> None:
    trace, root = fresh()
    body = {"text": text_of("traced zanzibar")} | OPTIONS
    answer = http.post("/v1/jobs", json=body, headers={"traceparent": f"00-{trace}-{root}-01"})
    job = finished(http, answer.json())
    expected = {"POST /v1/jobs", *(f"stage {stage}" for stage in STAGES)}
    expected |= {kind + stage.capitalize() for stage in STAGES for kind in ("", "call ")}
    until(lambda: {each.name for each in spans.of(trace)} >= expected, "the last spans arrive")
    found = spans.of(trace)
    by_id = {each.id: each for each in found}
    assert [each.name for each in found if each.parent not in by_id] == ["POST /v1/jobs"]
    for each in found:
        if each.name in ("Ingest", "Prefill", "Compress", "Decode"):
            assert by_id[each.parent].name == f"call {each.name}"
            assert by_id[by_id[each.parent].parent].name == f"stage {each.name.lower()}"
            assert job["id"] in each.raw
    assert len([each for each in found if each.name == "Prefill"]) == job["segments"]
    assert not [each for each in found if "zanzibar" in each.raw or job["result"]["summary"] in each.raw]


def test_errors_are_told_by_their_kind_alone(spans: Spans) -> None:
    trace, root = fresh()
    with (
        suppress(ValueError),
        span("broken", "SERVER", {"traceparent": f"00-{trace}-{root}-01"}, job="j1"),
    ):
        assert carrier()["traceparent"].startswith(f"00-{trace}-")
        raise ValueError("zanzibar")
    (broken,) = spans.of(trace)
    assert broken.parent == root
    assert '"status_code": "ERROR"' in broken.raw
    assert "ValueError" in broken.raw
    assert "zanzibar" not in broken.raw


def test_a_traceparent_that_is_none_does_no_harm(http: httpx.Client) -> None:
    answer = http.get("/v1/jobs/none", headers={"traceparent": "00-zz-zz-zz"})
    assert error(answer)["code"] == "job_not_found"


def test_traces_that_cannot_be_sent_are_refused_in_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.trace.export", None)  # as if it were not installed
    with pytest.raises(TracesNotInstalled, match=r"docexpress\[traces\]"):
        set_up("docexpress-test", wanted=True)
    set_up("docexpress-test", wanted=False)
