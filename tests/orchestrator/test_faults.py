"""What goes wrong with a worker, and that the job ends with the same text all the same."""

from __future__ import annotations

from itertools import pairwise

import grpc
import pytest

from orchestrator.jobs import Job
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import Orchestrator, until
from tests.orchestrator.scripted_worker import Fault, ScriptedWorker, die, status

Code = grpc.StatusCode
METHODS = ("Ingest", "Prefill", "Compress", "Decode")


def text_of(job: Job) -> str:
    assert job.result is not None, job.reason
    return str(job.result["summary"])


@pytest.fixture
def undisturbed(orchestrator: Orchestrator, worker: ScriptedWorker) -> str:
    """The text of the document, whose states are then forgotten."""
    text = text_of(orchestrator.finish(orchestrator.submit()))
    orchestrator.store.delete_all()
    worker.calls.clear()
    return text


@pytest.mark.parametrize("code", [Code.UNAVAILABLE, Code.INTERNAL, Code.FAILED_PRECONDITION])
def test_failed_calls_are_made_again(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str, code: grpc.StatusCode
) -> None:
    """Each of the four methods fails once."""
    for method in METHODS:
        worker.script[method].append(status(code))
    job = orchestrator.finish(orchestrator.submit())
    assert text_of(job) == undisturbed
    assert orchestrator.kinds(job).count("retry") == len(METHODS)


@pytest.mark.parametrize("code", [Code.NOT_FOUND, Code.DATA_LOSS])
def test_lost_object_leads_back_to_ingest(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str, code: grpc.StatusCode
) -> None:
    for method in METHODS[1:]:
        worker.script[method].append(status(code))
    job = orchestrator.finish(orchestrator.submit())
    assert text_of(job) == undisturbed
    kinds = orchestrator.kinds(job)
    after = [following for kind, following in pairwise(kinds) if kind == "retry"]
    assert after == ["ingest 0"] * 3


def test_deleted_state_is_rebuilt(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str
) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to("prefill", 2)
    orchestrator.store.delete("state", orchestrator.job(job).state)
    orchestrator.queue.send(message)
    job = orchestrator.finish(job)
    assert text_of(job) == undisturbed
    assert "Prefill 2" in worker.methods()


def test_segment_whose_state_is_lost_is_given_up(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    """Its KV is of no use any more, and would take up room on the worker until its lease expires."""
    job = orchestrator.submit()
    message = orchestrator.deliver_to("compress", 1)
    worker.script["Compress"].append(status(Code.NOT_FOUND))
    orchestrator.runner.run(message)
    assert worker.methods()[-1] == "Release"
    assert not worker.leases
    now = orchestrator.job(job)
    assert (now.stage, now.segment, now.lease) == ("ingest", 0, "")


def test_lost_lease_leads_back_to_prefill_of_the_segment(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str
) -> None:
    job = orchestrator.submit()
    message = orchestrator.deliver_to("compress", 1)
    worker.leases.clear()
    orchestrator.queue.send(message)
    job = orchestrator.finish(job)
    assert text_of(job) == undisturbed
    assert orchestrator.kinds(job)[3:9] == [
        "prefill 1",
        "compress 1",
        "retry",
        "prefill 1",
        "compress 1",
        "prefill 2",
    ]


@pytest.mark.parametrize("method", METHODS)
def test_dead_worker_is_replaced_by_the_other(
    orchestrator: Orchestrator,
    worker: ScriptedWorker,
    undisturbed: str,
    make_worker: MakeWorker,
    method: str,
) -> None:
    first_dies = _first_dies()
    for one in (worker, make_worker()):
        one.script[method].append(first_dies)
    job = orchestrator.finish(orchestrator.submit())
    assert text_of(job) == undisturbed


def _first_dies() -> Fault:
    """A fault for several workers: whichever is called first dies."""
    dead: list[ScriptedWorker] = []

    def fault(worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
        if not dead:
            dead.append(worker)
            die(worker, context)

    return fault


def test_only_worker_dies_and_a_new_one_comes(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str, make_worker: MakeWorker
) -> None:
    worker.script["Prefill"].extend([None, die])
    job = orchestrator.submit()
    with orchestrator.running():
        until(lambda: orchestrator.job(job).parked, "the job waits")
        make_worker()
        until(lambda: orchestrator.job(job).finished, "the job ends")
    assert text_of(orchestrator.job(job)) == undisturbed


def test_dead_worker_is_not_asked_again_while_its_record_stands(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    worker.script["Prefill"].append(die)
    job = orchestrator.finish(orchestrator.submit())
    assert job.status == "failed"
    assert "no worker with the model tiny is registered" in job.reason
    assert orchestrator.kinds(job).count("retry") == 1, "waiting does not count as a try"


@pytest.mark.parametrize("token", [0, 3, 5])
def test_broken_decode_gives_each_token_once(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str, token: int
) -> None:
    worker.token_script[token] = status(Code.UNAVAILABLE)
    job = orchestrator.finish(orchestrator.submit())
    assert text_of(job) == undisturbed
    tokens = [event.data for event in orchestrator.events(job) if event.kind == "token"]
    assert [data["index"] for data in tokens] == list(range(6))
    assert "".join(data["text"] for data in tokens) == undisturbed


@pytest.mark.parametrize("method", METHODS)
def test_tries_are_bounded(orchestrator: Orchestrator, worker: ScriptedWorker, method: str) -> None:
    worker.script[method].extend([status(Code.INTERNAL, "the device is broken")] * 100)
    job = orchestrator.finish(orchestrator.submit())
    assert job.status == "failed"
    assert job.retryable
    assert not job.invalid
    assert "the device is broken" in job.reason
    assert f"failed {orchestrator.settings.max_attempts} times" in job.reason
    called = [name for name in worker.methods() if name.startswith(method)]
    assert len(called) == orchestrator.settings.max_attempts
    assert orchestrator.events(job)[-1].data == {
        "reason": job.reason,
        "retryable": True,
        "invalid": False,
    }


def test_progress_forgets_failed_tries(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    broken = status(Code.INTERNAL)
    worker.script["Prefill"].extend([broken, broken, broken, broken, None] * 3)
    assert orchestrator.finish(orchestrator.submit()).status == "done"


def test_going_over_the_same_ground_is_no_progress(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    """A store that loses everything again and again must not keep a job going for ever."""

    def lose(worker: ScriptedWorker, context: grpc.ServicerContext) -> None:
        for manifest in orchestrator.store.list("state"):
            orchestrator.store.delete("state", manifest.name)
        context.abort(Code.NOT_FOUND, "everything is gone")

    worker.script["Decode"].extend([lose] * 100)
    job = orchestrator.finish(orchestrator.submit())
    assert job.status == "failed"
    assert worker.methods().count("Decode") == orchestrator.settings.max_attempts


def test_decode_that_gets_further_each_time_goes_on(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    for token in range(1, 40, 4):
        worker.token_script[token] = status(Code.UNAVAILABLE)
    job = orchestrator.finish(orchestrator.submit(max_new_tokens=40))
    assert job.status == "done", job.reason


@pytest.mark.parametrize("method", METHODS)
def test_refused_request_fails_at_once(
    orchestrator: Orchestrator, worker: ScriptedWorker, method: str
) -> None:
    worker.script[method].append(status(Code.INVALID_ARGUMENT, "cache_entries is 8; at least 33 are needed"))
    job = orchestrator.finish(orchestrator.submit())
    assert (job.status, job.reason) == ("failed", "cache_entries is 8; at least 33 are needed")
    assert job.invalid
    assert not job.retryable


def test_busy_worker_does_not_count(
    orchestrator: Orchestrator, worker: ScriptedWorker, undisturbed: str
) -> None:
    for method in METHODS[1:]:
        worker.script[method].extend([status(Code.RESOURCE_EXHAUSTED, "busy", reason="busy")] * 6)
    job = orchestrator.finish(orchestrator.submit())
    assert text_of(job) == undisturbed
    kinds = orchestrator.kinds(job)
    assert kinds.count("waiting") == 18
    assert "retry" not in kinds


def test_spent_budget_fails_the_job(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    worker.script["Compress"].append(status(Code.RESOURCE_EXHAUSTED, "the budget is spent", reason="budget"))
    job = orchestrator.finish(orchestrator.submit())
    assert (job.status, job.reason, job.retryable) == ("failed", "the budget is spent", True)


def test_exhausted_for_another_reason_is_bounded(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    worker.script["Prefill"].extend([status(Code.RESOURCE_EXHAUSTED, "out of memory")] * 100)
    job = orchestrator.finish(orchestrator.submit())
    assert job.status == "failed"
    assert "out of memory" in job.reason
