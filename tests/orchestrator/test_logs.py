"""Logs tell which job and stage a line is about, and never what a document, question or answer says."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from cache_store.log_format import JsonFormatter, TextFormatter, about, make_handler
from kernel_worker.model import LoadedModel
from kernel_worker.worker import Worker
from orchestrator.jobs import Job
from tests.orchestrator.harness import Orchestrator
from tests.orchestrator.test_real_worker import PLAN, loaded, real_worker

__all__ = ["loaded", "real_worker"]  # fixtures

WORDS = ("zanzibar", "quagmire", "xylophone")
TEXT = "The zanzibar of the fox jumps over the lazy dog, and the dog does not mind at all. " * 12
QUESTION = "Where is the quagmire of zanzibar?"
ROOMY = {**PLAN, "segment_tokens": 128}
MAGIC = {**PLAN, "policy": "magic"}


@pytest.fixture
def log() -> Iterator[io.StringIO]:
    """Everything that anybody in this process logs, as JSON."""
    stream, root = io.StringIO(), logging.getLogger()
    handler, before = make_handler("json", stream), root.level
    root.addHandler(handler)
    root.setLevel(logging.DEBUG)
    yield stream
    root.setLevel(before)
    root.removeHandler(handler)


def lines(log: io.StringIO, job: Job) -> list[dict[str, Any]]:
    read = [json.loads(line) for line in log.getvalue().splitlines()]
    return [line for line in read if line.get("job") == job.id]


def test_lines_of_a_job_tell_where_it_was_and_not_what_it_read(
    orchestrator: Orchestrator, real_worker: Worker, log: io.StringIO
) -> None:
    job = orchestrator.finish(orchestrator.submit(TEXT, query="xylophone?", **ROOMY), 60)
    asked = orchestrator.finish(orchestrator.ask(job, QUESTION), 60)
    assert (job.status, asked.status) == ("done", "done")
    worker_lines = [line for line in lines(log, job) if line["logger"].startswith("kernel_worker")]
    places = {(line["stage"], line.get("segment")) for line in worker_lines}
    assert places == {
        *(("ingest", None), ("rank", None), ("decode", None)),
        *((stage, segment) for stage in ("prefill", "compress") for segment in range(job.segments)),
    }
    assert [line["stage"] for line in lines(log, asked) if line["message"].startswith("Decode")] == ["decode"]
    nothing_told(log, job, asked)


def nothing_told(log: io.StringIO, *jobs: Job) -> None:
    told = log.getvalue()
    assert not [word for word in WORDS if word in told.lower()]
    for job in jobs:
        for name in ("summary", "answer"):
            text = json.dumps((job.result or {}).get(name, ""), ensure_ascii=False)[1:-1]
            assert len(text) < 8 or text not in told


def test_failing_jobs_tell_no_text_either(
    orchestrator: Orchestrator, real_worker: Worker, loaded: LoadedModel, log: io.StringIO
) -> None:
    def refuse(*_: object) -> None:
        raise ValueError(f"what a library might say: {TEXT}")

    hook = loaded.model.model.layers[1].register_forward_pre_hook(refuse)
    broken = orchestrator.finish(orchestrator.submit(TEXT, **PLAN), 60)
    hook.remove()
    refused = orchestrator.finish(orchestrator.submit(f"<|im_start|>{TEXT}", **MAGIC), 60)
    assert (broken.status, refused.status) == ("failed", "failed")
    assert [line for line in lines(log, broken) if line["message"].startswith("ValueError\n")]
    assert [line for line in lines(log, refused) if "magic" in line["message"]]
    nothing_told(log, broken, refused)


@pytest.mark.parametrize("formatter", [TextFormatter(), JsonFormatter()], ids=["text", "json"])
def test_an_exception_is_logged_without_its_message(formatter: logging.Formatter) -> None:
    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    handler.setFormatter(formatter)
    logger = logging.Logger("one")
    logger.addHandler(handler)
    for error in (ValueError("zanzibar"), KeyError("zanzibar"), OSError(5, "no such device")):
        try:
            raise error
        except Exception:
            logger.exception("it broke")
    told = stream.getvalue()
    assert "zanzibar" not in told
    for word in ("it broke", "ValueError", "KeyError", "no such device", "test_logs.py"):
        assert word in told


def test_what_a_line_is_about_ends_with_its_context() -> None:
    record = logging.LogRecord("one", logging.INFO, __file__, 1, "said\n%s", ("twice",), None)
    with about(job="j1", stage="prefill"):
        with about(segment=3):
            inner = json.loads(JsonFormatter().format(record))
        outer = json.loads(JsonFormatter().format(record))
    assert (inner["job"], inner["stage"], inner["segment"]) == ("j1", "prefill", 3)
    assert inner["message"] == "said\ntwice"
    assert "segment" not in outer
    assert "job" not in json.loads(JsonFormatter().format(record))
