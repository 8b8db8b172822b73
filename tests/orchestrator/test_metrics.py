"""Counts are part of the transitions that they count; the exporter reads everything from Redis."""

from __future__ import annotations

from collections.abc import Iterator

import grpc
import pytest
import redis
from kombu import Connection

from orchestrator.celery_app import make_app
from orchestrator.messages import StageMessage
from orchestrator.settings import Settings
from orchestrator.tasks import CelerySender
from orchestrator.telemetry.counts import HISTOGRAMS, Histogram
from orchestrator.telemetry.exporter import Exporter
from orchestrator.telemetry.queues import unacknowledged
from tests.metrics import Exposition
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import DOCUMENT, Orchestrator
from tests.orchestrator.scripted_worker import ScriptedWorker, status


@pytest.fixture
def exporter(settings: Settings) -> Iterator[Exporter]:
    made = Exporter(settings)
    yield made
    made.close()


def scrape(exporter: Exporter) -> Exposition:
    return Exposition.of(exporter.registry)


def test_before_the_first_job_everything_stands_at_nought(exporter: Exporter) -> None:
    now = scrape(exporter)
    assert now.value("jobs_submitted_total", kind="ask") == 0
    assert now.value("jobs_ended_total", kind="summarize", outcome="failed") == 0
    assert now.value("time_to_first_token_seconds_bucket", kind="summarize", le="+Inf") == 0
    assert now.value("workers", state="ready") == 0
    assert now.value("store_up", store="cache") == 1
    assert now.value("store_memory_limit_bytes", store="broker") == 2 * 1024**3
    assert now.value("store_evicted_keys_total", store="cache") == 0


def test_a_job_is_counted_as_it_went(
    orchestrator: Orchestrator, worker: ScriptedWorker, exporter: Exporter
) -> None:
    done = orchestrator.finish(orchestrator.submit())
    now = scrape(exporter)
    assert now.value("jobs_submitted_total", kind="summarize") == 1
    assert now.value("jobs_ended_total", kind="summarize", outcome="done") == 1
    for stage, times in (("ingest", 1), ("prefill", 3), ("compress", 3), ("decode", 1)):
        assert now.value("stage_seconds_count", stage=stage) == times
        assert now.value("stage_seconds_sum", stage=stage) > 0
    assert now.value("tokens_read_total") == len(DOCUMENT)
    assert now.value("tokens_written_total") == 6
    assert now.value("store_segments_total", result="miss") == 3
    assert now.value("time_to_first_token_seconds_count", kind="summarize") == 1
    first, whole = (f"{name}_seconds_sum" for name in ("time_to_first_token", "job"))
    assert 0 < now.value(first, kind="summarize") <= now.value(whole, kind="summarize")
    assert now.value("state_written_bytes_total") >= done.state_bytes > 0
    assert now.value("error_estimate_bucket", kind="summarize", le="0.2") == 0
    assert now.value("error_estimate_bucket", kind="summarize", le="0.25") == 1
    assert now.value("error_estimate_sum", kind="summarize") == 0.25
    assert now.value("stored_bytes") == orchestrator.store.usage().bytes > 0
    orchestrator.finish(orchestrator.submit())
    again = scrape(exporter)
    assert again.value("store_segments_total", result="hit") == 3
    assert again.value("store_segments_total", result="miss") == 3
    assert again.value("tokens_read_total") == len(DOCUMENT)


def test_what_is_delivered_twice_is_counted_once(
    orchestrator: Orchestrator, worker: ScriptedWorker, exporter: Exporter
) -> None:
    job = orchestrator.submit()
    first = orchestrator.deliver_to("prefill")
    orchestrator.runner.run(StageMessage(job.id, job.tenant, "ingest", 0, 0))
    assert scrape(exporter).value("stage_seconds_count", stage="ingest") == 1
    orchestrator.queue.messages.put(first)
    orchestrator.finish(job)
    assert scrape(exporter).value("stage_seconds_count", stage="ingest") == 1


def test_lost_leases_retries_and_failures_are_counted(
    orchestrator: Orchestrator, worker: ScriptedWorker, exporter: Exporter
) -> None:
    worker.script["Compress"].append(status(grpc.StatusCode.FAILED_PRECONDITION))
    worker.script["Decode"].append(status(grpc.StatusCode.INVALID_ARGUMENT))
    orchestrator.finish(orchestrator.submit())
    now = scrape(exporter)
    assert now.value("lease_losses_total") == 1
    assert now.value("stage_retries_total", stage="compress") == 1
    assert now.value("stage_retries_total", stage="prefill") == 0
    assert now.value("claims_lapsed_total", stage="compress") == 0
    assert now.value("jobs_ended_total", kind="summarize", outcome="failed") == 1
    assert now.value("job_seconds_count", kind="summarize") == 0


def test_waiting_running_parked_and_cancelled_jobs(
    orchestrator: Orchestrator, make_worker: MakeWorker, exporter: Exporter
) -> None:
    queued = orchestrator.submit()
    now = scrape(exporter)
    assert now.value("jobs", stage="ingest", state="queued") == 1
    assert now.value("queue_depth_jobs", queue="prefill") == 1
    orchestrator.deliver()  # there is no worker
    now = scrape(exporter)
    assert now.value("jobs", stage="ingest", state="parked") == 1
    assert now.value("queue_depth_jobs", queue="prefill") == 1
    worker = make_worker()
    now = scrape(exporter)
    assert now.value("workers", state="ready") == 1
    assert now.value("workers_capacity_calls") == 1
    orchestrator.pool.suspend(worker.id)
    assert scrape(exporter).value("workers", state="suspended") == 1
    orchestrator.jobs.cancel(queued.tenant, queued.id)
    orchestrator.jobs.cancel(queued.tenant, queued.id)
    now = scrape(exporter)
    assert now.value("queue_depth_jobs", queue="prefill") == 0
    assert now.value("jobs_ended_total", kind="summarize", outcome="cancelled") == 1


def test_what_celery_has_delivered_and_not_acknowledged_is_still_seen(
    settings: Settings, redis_client: redis.Redis, exporter: Exporter
) -> None:
    app = make_app(settings)
    CelerySender(app).send(StageMessage("j1", "default", "compress", 0, 0))
    assert scrape(exporter).value("queue_messages", queue="compress", state="waiting") == 1
    connection: Connection
    with app.connection() as connection:
        queue = next(each for each in app.conf.task_queues if each.name == "compress")
        message = queue(connection.channel()).get()
        now = scrape(exporter)
        assert now.value("queue_messages", queue="compress", state="waiting") == 0
        assert now.value("queue_messages", queue="compress", state="unacknowledged") == 1
        assert now.value("queue_messages", queue="decode", state="unacknowledged") == 0
        message.ack()
        assert unacknowledged(redis_client)["compress"] == 0
    app.close()


def test_a_store_that_is_away_is_told_and_the_other_one_still_shown(
    settings: Settings, orchestrator: Orchestrator
) -> None:
    orchestrator.submit()
    exporter = Exporter(settings.model_copy(update={"cache_url": "redis://127.0.0.1:1/0"}))
    now = scrape(exporter)
    exporter.close()
    assert now.value("store_up", store="cache") == 0
    assert now.value("store_up", store="broker") == 1
    assert now.value("tokens_read_total") == 0
    assert "docexpress_stored_bytes" not in now.names()


def test_no_series_is_named_after_a_job_a_tenant_or_a_worker(
    orchestrator: Orchestrator, worker: ScriptedWorker, exporter: Exporter
) -> None:
    orchestrator.finish(orchestrator.submit())
    now = scrape(exporter)
    assert set(now.labels()) == {"stage", "state", "queue", "kind", "outcome", "result", "store", "le"}
    assert max(len(values) for values in now.labels().values()) < 30


@pytest.mark.parametrize("histogram", HISTOGRAMS, ids=lambda histogram: str(histogram.name))
def test_a_value_falls_into_the_bucket_that_it_is_not_above(histogram: Histogram) -> None:
    for bucket, bound in enumerate(histogram.bounds):
        assert f"{histogram.name}|x|{bucket}" in histogram.at(bound, "x")
        assert f"{histogram.name}|x|{bucket + 1}" in histogram.at(bound * 1.001, "x")
