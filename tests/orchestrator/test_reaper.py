"""Lost messages, dead orchestrators, duplicates: each stage is done once, and none is forgotten."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Iterator

import pytest

from orchestrator.job_store import Move
from orchestrator.jobs import Job
from orchestrator.messages import StageMessage
from orchestrator.settings import Settings
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import Orchestrator, until
from tests.orchestrator.scripted_worker import Gate, ScriptedWorker

PLACES = [("ingest", 0), ("prefill", 1), ("compress", 1), ("decode", 3)]
METHOD = {"ingest": "Ingest", "prefill": "Prefill", "compress": "Compress", "decode": "Decode"}


@pytest.fixture
def other(settings: Settings, orchestrator: Orchestrator) -> Iterator[Orchestrator]:
    """A second orchestrator on the same queue."""
    made = Orchestrator(settings, orchestrator.queue)
    yield made
    made.close()


def abandon(orchestrator: Orchestrator, job: Job) -> Job:
    """Claims the job's stage as a task does that dies at once; the job as that task saw it."""
    now = orchestrator.job(job)
    assert orchestrator.jobs.move(now, Move({"status": now.stage}, claim="dead"))
    return dataclasses.replace(now, claim="dead")


def reap_until(orchestrator: Orchestrator, condition: Callable[[], bool], what: str) -> None:
    until(lambda: orchestrator.reaper.tick() and condition(), what)


@pytest.mark.parametrize(("stage", "segment"), PLACES)
def test_lost_message_is_sent_again(
    orchestrator: Orchestrator, worker: ScriptedWorker, stage: str, segment: int
) -> None:
    orchestrator.queue.lose.add((stage, segment))
    job = orchestrator.finish(orchestrator.submit())
    assert job.status == "done"
    sent = [m for m in orchestrator.queue.sent if (m.stage, m.segment) == (stage, segment)]
    assert len(sent) == 2
    assert sent[0] == sent[1], "it is the same place, not a new try"
    assert "retry" not in orchestrator.kinds(job)


def test_message_that_may_still_come_is_not_sent_again(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    orchestrator.submit()
    assert orchestrator.reaper.tick()
    assert len(orchestrator.queue.sent) == 1


@pytest.mark.parametrize(("stage", "segment"), PLACES)
def test_stage_of_a_dead_orchestrator_is_taken_over(
    orchestrator: Orchestrator, worker: ScriptedWorker, stage: str, segment: int
) -> None:
    job = orchestrator.submit()
    orchestrator.deliver_to(stage, segment)
    abandon(orchestrator, job)
    ended = orchestrator.finish(job)
    assert ended.status == "done"
    retry = next(event for event in orchestrator.events(job) if event.kind == "retry")
    assert retry.data == {
        "stage": stage,
        "segment": segment,
        "attempt": 2,
        "reason": "the orchestrator that worked on it stopped",
    }


def test_stage_that_kills_its_orchestrator_is_given_up(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.submit()
    for _ in range(orchestrator.settings.max_attempts):
        reap_until(orchestrator, lambda: not orchestrator.job(job).parked, "it is queued")
        abandon(orchestrator, job)
        reap_until(orchestrator, lambda: not orchestrator.job(job).claim, "the claim is taken away")
    ended = orchestrator.job(job)
    assert ended.status == "failed"
    assert "the orchestrator that worked on it stopped" in ended.reason
    assert f"failed {orchestrator.settings.max_attempts} times" in ended.reason


@pytest.mark.parametrize(("stage", "segment"), PLACES)
def test_duplicate_delivery_runs_once(
    orchestrator: Orchestrator,
    other: Orchestrator,
    worker: ScriptedWorker,
    stage: str,
    segment: int,
) -> None:
    """Twice at the same time, and once more afterwards."""
    job = orchestrator.submit()
    message = orchestrator.deliver_to(stage, segment)
    gate = Gate()
    worker.script[METHOD[stage]].append(gate)
    thread = threading.Thread(target=orchestrator.runner.run, args=(message,))
    thread.start()
    assert gate.reached.wait(5)
    other.runner.run(message)
    gate.open.set()
    thread.join()
    other.runner.run(message)
    assert orchestrator.finish(job).status == "done"
    wanted = METHOD[stage] if stage in ("ingest", "decode") else f"{METHOD[stage]} {segment}"
    assert worker.methods().count(wanted) == 1


def test_old_message_after_a_retry_matches_nothing(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    job = orchestrator.submit()
    old = orchestrator.deliver_to("prefill", 0)
    now = orchestrator.job(job)
    assert orchestrator.jobs.move(now, Move({"attempt": now.attempt + 1}))
    orchestrator.runner.run(old)
    assert "Prefill 0" not in worker.methods()


def test_late_orchestrator_writes_nothing(
    orchestrator: Orchestrator, other: Orchestrator, worker: ScriptedWorker
) -> None:
    """One that was only suspended finds its stage taken over, and leaves the job alone."""
    job = orchestrator.submit()
    message = orchestrator.deliver_to("decode", 3)
    gate = Gate()
    worker.script["Decode"].append(gate)
    thread = threading.Thread(target=orchestrator.runner.run, args=(message,))
    thread.start()
    assert gate.reached.wait(5)
    stolen = dataclasses.replace(orchestrator.job(job))
    assert orchestrator.jobs.move(stolen, Move({"attempt": stolen.attempt + 1}))
    other.queue.send(StageMessage.of(orchestrator.job(job)))
    assert gate.cancelled.wait(5), "the call of the one that lost its claim is cancelled"
    thread.join()
    done = other.finish(job)
    assert done.status == "done"
    assert orchestrator.kinds(job).count("done") == 1


def test_one_reaper_at_a_time(orchestrator: Orchestrator, other: Orchestrator) -> None:
    assert orchestrator.reaper.tick()
    assert not other.reaper.tick()
    assert orchestrator.reaper.tick()
    orchestrator.reaper.release()
    assert other.reaper.tick()


def test_two_orchestrators_share_jobs(
    orchestrator: Orchestrator, other: Orchestrator, make_worker: MakeWorker
) -> None:
    workers = [make_worker(), make_worker()]
    jobs = [orchestrator.submit(letter * 50) for letter in "abcdef"]
    with orchestrator.running(), other.running():
        until(lambda: all(orchestrator.job(job).finished for job in jobs), "all jobs end", 20)
    assert {orchestrator.job(job).status for job in jobs} == {"done"}
    calls = [call for worker in workers for call in worker.methods() if call != "Ingest"]
    assert len(calls) == len(jobs) * (4 + 4 + 1), "nothing was done twice"
