"""The orchestrator with the real kernel worker and a tiny random model: a job, the same again, a question."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cache_store.connection import connect
from kernel_worker.model import LoadedModel
from kernel_worker.settings import WorkerSettings
from kernel_worker.worker import Worker
from orchestrator.jobs import Job
from orchestrator.settings import Settings
from tests.kernel_worker.tiny import tiny_loaded
from tests.orchestrator.harness import Orchestrator, until

TEXT = "The quick brown fox jumps over the lazy dog, and the dog does not mind at all. " * 12
PLAN = {
    "model": "tiny-llama",
    "policy": "uniform",
    "policy_parameters": {"sinks": "4"},
    "cache_entries": 64,
    "segment_tokens": 96,
    "max_new_tokens": 70,
}


@pytest.fixture(scope="module")
def loaded() -> LoadedModel:
    return tiny_loaded()


@pytest.fixture
def real_worker(settings: Settings, orchestrator: Orchestrator, loaded: LoadedModel) -> Iterator[Worker]:
    own = WorkerSettings(model="tiny", device="cpu", heartbeat_seconds=0.1)
    cache, broker = connect(settings.cache_url), connect(settings.redis_url)
    worker = Worker(own, settings, loaded, cache=cache, broker=broker)
    worker.start()
    until(lambda: orchestrator.pool.members(), "the worker is registered")
    yield worker
    worker.stop()
    cache.close()
    broker.close()


def finished(orchestrator: Orchestrator, job: Job) -> Job:
    ended = orchestrator.finish(job, 60)
    assert ended.status == "done", ended.reason
    return ended


def test_document_is_read_once(orchestrator: Orchestrator, real_worker: Worker) -> None:
    first = finished(orchestrator, orchestrator.submit(TEXT, **PLAN))
    assert first.segments > 3
    assert first.result is not None
    result = dict(first.result)
    assert result["prefill_tokens"] == result["tokens_read"] == first.token_count
    assert result["cache_entries"] <= 64
    assert result["state_bytes"] < result["full_cache_bytes"]
    assert 0 < result["error_estimate"] < 2
    assert len(result["error_by_layer"]) == 3
    assert result["tokens_written"] == 70 or result["finish_reason"] == "stop"
    assert [manifest.name for manifest in orchestrator.store.list("state")] == [first.state]
    assert orchestrator.store.list("checkpoint") == []

    second = finished(orchestrator, orchestrator.submit(TEXT, **PLAN))
    assert second.result is not None
    assert second.result["prefill_tokens"] == 0
    assert second.result["summary"] == result["summary"]
    assert second.result["error_by_layer"] == result["error_by_layer"]

    answers = [finished(orchestrator, orchestrator.ask(job, "Who?")).result for job in (first, second)]
    assert answers[0] is not None
    assert answers[1] is not None
    assert answers[0]["answer"] == answers[1]["answer"]
    assert answers[0]["prefill_tokens"] == 0


def test_budget_that_holds_no_sinks_is_refused(orchestrator: Orchestrator, real_worker: Worker) -> None:
    job = orchestrator.finish(orchestrator.submit(TEXT, **{**PLAN, "cache_entries": 2}), 30)
    assert job.status == "failed"
    assert job.invalid
    assert "entries" in job.reason


def test_unknown_policy_is_refused(orchestrator: Orchestrator, real_worker: Worker) -> None:
    job = orchestrator.finish(orchestrator.submit(TEXT, **{**PLAN, "policy": "magic"}), 30)
    assert job.invalid
    assert "magic" in job.reason
