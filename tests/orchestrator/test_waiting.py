"""Jobs that find no worker: how long they wait, what they say, and in what order they go on."""

from __future__ import annotations

import time

import pytest

from orchestrator.errors import PoolBusy
from orchestrator.settings import Settings
from protos.kernel_worker_pb2 import ReleaseRequest
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import Orchestrator, until
from tests.orchestrator.scripted_worker import Gate, ScriptedWorker


def test_no_worker_at_all(orchestrator: Orchestrator, settings: Settings) -> None:
    started = time.monotonic()
    job = orchestrator.finish(orchestrator.submit(model="big"))
    assert time.monotonic() - started >= settings.worker_wait_seconds
    assert job.status == "failed"
    assert "no worker with the model big is registered (no worker is registered at all)" in job.reason
    assert job.retryable
    assert orchestrator.kinds(job) == ["ingest 0", "waiting", "failed"]


def test_other_models_are_named(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(model="tiny", fingerprint="f1")
    make_worker(model="small", fingerprint="f2")
    job = orchestrator.finish(orchestrator.submit(model="big"))
    assert (
        "no worker with the model big is registered (registered are workers with small, tiny)" in job.reason
    )


def test_worker_that_comes_in_time(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    job = orchestrator.submit()
    with orchestrator.running():
        until(lambda: orchestrator.job(job).parked, "the job waits")
        make_worker()
        until(lambda: orchestrator.job(job).finished, "the job ends")
    assert orchestrator.job(job).status == "done"


def test_busy_worker_is_waited_for_as_long_as_it_takes(
    orchestrator: Orchestrator, worker: ScriptedWorker, settings: Settings
) -> None:
    gate = Gate()
    worker.script["Prefill"].append(gate)
    first, second = orchestrator.submit("a" * 40), orchestrator.submit("b" * 40)
    with orchestrator.running():
        assert gate.reached.wait(5)
        until(lambda: orchestrator.job(second).parked or orchestrator.job(first).parked, "one waits")
        since = time.monotonic()
        until(lambda: time.monotonic() - since > 1.5 * settings.worker_wait_seconds, "time passes")
        gate.open.set()
        until(lambda: all(orchestrator.job(job).finished for job in (first, second)), "both end")
    assert {orchestrator.job(job).status for job in (first, second)} == {"done"}


def test_a_long_job_does_not_starve_the_others(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    """They take turns: with one worker, others get on between two segments of a long document."""
    gate = Gate()
    worker.script["Prefill"].append(gate)
    long = orchestrator.submit("x" * 60 * 16)
    with orchestrator.running(threads=4):
        assert gate.reached.wait(5)
        others = [orchestrator.submit(letter * 40) for letter in "ab"]
        until(lambda: all(orchestrator.job(job).parked for job in others), "the others wait")
        gate.open.set()
        until(lambda: all(orchestrator.job(job).finished for job in others), "the others end")
        assert orchestrator.job(long).segment < 20, "the long one is far from its end"
        orchestrator.jobs.cancel(long.tenant, long.id)


def test_worker_is_reserved_for_whoever_has_waited(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    first, second = orchestrator.submit("a" * 40), orchestrator.submit("b" * 40)
    orchestrator.deliver_to("prefill")
    orchestrator.pool.reserve(orchestrator.job(first))
    while not orchestrator.job(second).parked:
        orchestrator.deliver()
    orchestrator.pool.release(first, worker.id)
    orchestrator.dispatcher.wake()
    assert orchestrator.queue.sent[-1].job == second.id
    with pytest.raises(PoolBusy):
        orchestrator.pool.reserve(orchestrator.job(first))
    assert orchestrator.pool.reserve(orchestrator.job(second)).id == worker.id


def test_worker_stays_reserved_for_a_long_call(
    orchestrator: Orchestrator, worker: ScriptedWorker, settings: Settings
) -> None:
    short = Orchestrator(settings.model_copy(update={"reservation_ttl": 1.1}), orchestrator.queue)
    gate = Gate()
    worker.script["Prefill"].append(gate)
    job = short.submit()
    with short.running():
        assert gate.reached.wait(5)
        since = time.monotonic()
        while time.monotonic() - since < 2.5:
            assert short.pool.members()[0].reserved["calls"] == 1
        gate.open.set()
        until(lambda: short.job(job).finished, "the job ends")
    short.close()


def test_capacity_is_never_exceeded(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    worker = make_worker(capacity=2)
    gates = [Gate() for _ in range(5)]
    worker.script["Prefill"].extend(gates)
    jobs = [orchestrator.submit(letter * 16) for letter in "abcde"]
    with orchestrator.running(threads=5):
        for gate in gates:
            assert gate.reached.wait(5)
            assert sum(one.reached.is_set() and not one.open.is_set() for one in gates) <= 2
            gate.open.set()
        until(lambda: all(orchestrator.job(job).finished for job in jobs), "all end")


def test_draining_worker_gets_no_new_work_but_finishes(
    orchestrator: Orchestrator, worker: ScriptedWorker, make_worker: MakeWorker
) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to("compress", 0)
    worker.draining = True
    until(lambda: orchestrator.pool.members()[0].record.draining, "it says that it drains")
    orchestrator.queue.send(message)
    orchestrator.deliver_to("prefill", 1)
    assert worker.methods()[-1] == "Compress 0", "the lease is still used"
    new = make_worker()
    orchestrator.runner.run(orchestrator.queue.sent[-1])
    assert new.methods() == ["Prefill 1"]
    assert orchestrator.finish(job).status == "done"


def test_model_can_be_named_by_its_fingerprint(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    assert orchestrator.finish(orchestrator.submit(model="f1")).status == "done"


def test_job_stays_with_its_fingerprint(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    """Two workers with a model of the same name, in different precision: states are not mixed."""
    one, two = make_worker(fingerprint="f1"), make_worker(fingerprint="f2")
    job = orchestrator.finish(orchestrator.submit("x" * 100))
    used = {worker.fingerprint for worker in (one, two) if worker.calls}
    assert used == {job.model_fingerprint}


def test_a_worker_that_comes_back_elsewhere_is_called_there(
    orchestrator: Orchestrator, make_worker: MakeWorker
) -> None:
    """Under the same id, before its old record has lapsed: nobody ever sees it missing."""
    before = make_worker(name="same")
    assert orchestrator.finish(orchestrator.submit("a" * 40)).status == "done"
    before.kill()
    after = make_worker(name="same")
    until(lambda: orchestrator.pool.find("same") == after.record(), "the new address is known")
    job = orchestrator.finish(orchestrator.submit("b" * 40))
    assert (job.status, job.failures) == ("done", 0)
    assert after.calls


def test_channels_to_where_nobody_is_registered_any_more_are_closed(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    channels = orchestrator.channels
    with channels.stub(worker.record()) as stub:
        channels.prune([])
        stub.Release(ReleaseRequest(lease="none"))
    channels.prune([])
    with pytest.raises(ValueError, match="closed"):
        stub.Release(ReleaseRequest(lease="none"))
