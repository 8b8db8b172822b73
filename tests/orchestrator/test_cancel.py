"""Cancelling: in every stage, running, queued or waiting; the worker stops, and nothing is written later."""

from __future__ import annotations

import threading
from typing import Any

import grpc
import pytest

from orchestrator.errors import PoolBusy
from orchestrator.job_keys import JobKeys
from orchestrator.jobs import Job
from orchestrator.settings import Settings
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import Orchestrator, until
from tests.orchestrator.scripted_worker import Gate, ScriptedWorker

RUNNING = [
    ("Ingest", "ingest", 0),
    ("Prefill", "prefill", 1),
    ("Compress", "compress", 1),
    ("Decode", "decode", 3),
]


@pytest.mark.parametrize(("method", "stage", "segment"), RUNNING)
def test_running_call_is_cancelled(
    orchestrator: Orchestrator, worker: ScriptedWorker, method: str, stage: str, segment: int
) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to(stage, segment)
    gate = Gate()
    worker.script[method].append(gate)
    thread = threading.Thread(target=orchestrator.runner.run, args=(message,))
    thread.start()
    assert gate.reached.wait(5)
    assert orchestrator.jobs.cancel(job.tenant, job.id)
    assert gate.cancelled.wait(2), "the worker learns of it"
    thread.join(5)
    assert not thread.is_alive()
    assert orchestrator.job(job).status == "cancelled"
    assert orchestrator.kinds(job)[-1] == "cancelled"
    assert orchestrator.queue.messages.empty()
    assert not any(orchestrator.pool.members()[0].reserved.values()), "the worker is free again"


def test_decode_stops_between_two_tokens(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to("decode", 3)
    gate = Gate()
    worker.token_script[3] = gate
    thread = threading.Thread(target=orchestrator.runner.run, args=(message,))
    thread.start()
    assert gate.reached.wait(5)
    until(lambda: orchestrator.jobs.token_count(job) == 3, "three tokens are written")
    orchestrator.jobs.cancel(job.tenant, job.id)
    assert gate.cancelled.wait(2)
    thread.join(5)
    assert orchestrator.jobs.token_count(job) == 3


@pytest.mark.parametrize(("method", "stage", "segment"), RUNNING)
def test_queued_stage_is_not_begun(
    orchestrator: Orchestrator, worker: ScriptedWorker, method: str, stage: str, segment: int
) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to(stage, segment)
    orchestrator.jobs.cancel(job.tenant, job.id)
    before = len(worker.calls)
    orchestrator.runner.run(message)
    assert [name for name, _ in worker.calls[before:]] == (["Release"] if stage == "compress" else [])
    assert not worker.leases, "a cancelled job holds no segment on a worker"
    assert not any(orchestrator.pool.members()[0].reserved.values()), "nor room there"


def test_room_taken_for_a_waiting_job_is_given_up(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to("decode", 3)
    orchestrator.dispatcher.park(orchestrator.job(job), PoolBusy("all workers are busy"))
    orchestrator.dispatcher.wake()
    assert orchestrator.pool.members()[0].reserved["rows"] == 1
    orchestrator.jobs.cancel(job.tenant, job.id)
    orchestrator.runner.run(message)
    assert orchestrator.pool.members()[0].reserved["rows"] == 0


def test_segment_read_in_vain_is_given_up(
    orchestrator: Orchestrator, worker: ScriptedWorker, settings: Settings
) -> None:
    """The job is cancelled when its prefill is done, and before the task has noticed."""
    slow = Orchestrator(
        settings.model_copy(update={"claim_beat": 5.0, "claim_ttl": 20.0}), orchestrator.queue
    )
    job = orchestrator.submit()
    message = orchestrator.deliver_to("prefill", 0)

    def cancel(worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
        until(lambda: whole_segments(orchestrator, job) == 1, "all progress is told")
        orchestrator.jobs.cancel(job.tenant, job.id)

    worker.before_lease[0] = cancel
    slow.runner.run(message)
    slow.close()
    assert worker.methods()[-1] == "Release"
    assert not worker.leases


def whole_segments(orchestrator: Orchestrator, job: Job) -> int:
    entries: Any = orchestrator.client.xrange(JobKeys(job.tenant, job.id).events)
    return sum(b'"fraction":1.0' in fields[b"data"] for _, fields in entries)


def test_waiting_job_is_cancelled(orchestrator: Orchestrator) -> None:
    job = orchestrator.submit()
    orchestrator.deliver()
    assert orchestrator.job(job).parked
    orchestrator.jobs.cancel(job.tenant, job.id)
    assert orchestrator.reaper.tick()
    assert orchestrator.jobs.parked() == orchestrator.jobs.active() == []
    assert orchestrator.queue.messages.empty()


def test_others_go_on(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    worker = make_worker()
    gate = Gate()
    worker.script["Prefill"].append(gate)
    first = orchestrator.submit("a" * 40)
    with orchestrator.running():
        assert gate.reached.wait(5)
        second = orchestrator.submit("b" * 40)
        orchestrator.jobs.cancel(first.tenant, first.id)
        until(lambda: orchestrator.job(second).status == "done", "the other job is done")
