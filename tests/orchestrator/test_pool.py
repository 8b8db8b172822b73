"""Reservations: atomic, bounded by capacity, fair, and gone when nobody renews them."""

from __future__ import annotations

import dataclasses
import threading

import pytest

from cache_store.worker_registry import announce
from orchestrator.errors import NoWorker, PoolBusy
from orchestrator.jobs import Job
from orchestrator.pool import rooms
from orchestrator.submission import _new_job
from tests.orchestrator.conftest import MakeWorker
from tests.orchestrator.harness import Orchestrator, options, until
from tests.orchestrator.scripted_worker import TTL_SECONDS, ScriptedWorker


def new_job() -> Job:
    return _new_job("default", "summarize", "a.txt", options())


def test_least_loaded_first(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(capacity=4, name="a")
    make_worker(capacity=2, name="b")
    chosen = [orchestrator.pool.reserve(new_job()).id for _ in range(6)]
    assert chosen == ["a", "b", "a", "a", "b", "a"]
    with pytest.raises(PoolBusy, match="all workers with the model tiny are busy"):
        orchestrator.pool.reserve(new_job())


def test_same_job_reserves_once(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    job = new_job()
    assert orchestrator.pool.reserve(job).id == orchestrator.pool.reserve(job).id == worker.id
    assert orchestrator.pool.members()[0].reserved["calls"] == 1


def test_last_worker_is_preferred_among_equals(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    for name in ("a", "b", "c"):
        make_worker(capacity=2, name=name)
    job = dataclasses.replace(new_job(), worker="b")
    assert orchestrator.pool.reserve(job).id == "b"
    other = dataclasses.replace(new_job(), worker="b")
    assert orchestrator.pool.reserve(other).id != "b", "an idle worker is better than a warm one"


def test_hot_state_is_preferred_among_equals(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(name="a")
    cold = make_worker(name="b")
    cold.kill()
    hot = cold.record().model_copy(update={"hot_states": ("s1",)})
    until(lambda: orchestrator.pool.find("b"), "it is registered")
    announce(orchestrator.client, hot, TTL_SECONDS)
    assert orchestrator.pool.reserve(dataclasses.replace(new_job(), state="s1")).id == "b"


def test_moving_gives_the_old_reservation_up(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(name="a")
    job = new_job()
    orchestrator.pool.reserve(job)
    make_worker(name="b")
    orchestrator.pool.reserve(dataclasses.replace(job, worker="b"))
    assert [member.reserved["calls"] for member in orchestrator.pool.members()] == [0, 1]


def test_decodes_have_rows_of_their_own(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    worker = make_worker(capacity=1, decode_rows=2)
    writing = [dataclasses.replace(new_job(), stage="decode") for _ in range(3)]
    orchestrator.pool.reserve(new_job())
    for job in writing[:2]:
        assert orchestrator.pool.reserve(job).id == worker.id
    for job in (writing[2], new_job()):
        with pytest.raises(PoolBusy):
            orchestrator.pool.reserve(job)
    assert orchestrator.pool.members()[0].reserved == {"calls": 1, "rows": 2}
    orchestrator.pool.release(writing[0], worker.id)
    take = rooms(orchestrator.pool.members())
    assert [take(job) for job in (new_job(), writing[2], writing[0])] == [False, True, False]


def test_who_reads_nothing_writes_first(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(decode_rows=2, name="a")
    orchestrator.pool.reserve(new_job())
    make_worker(decode_rows=2, name="b")
    job = dataclasses.replace(new_job(), stage="decode", worker="a")
    assert orchestrator.pool.reserve(job).id == "b"


def test_reservation_lapses(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    orchestrator.pool.reserve(new_job())
    with pytest.raises(PoolBusy):
        orchestrator.pool.reserve(new_job())
    until(lambda: orchestrator.pool.members()[0].reserved["calls"] == 0, "the reservation lapses")
    orchestrator.pool.reserve(new_job())


def test_lease_holder_is_held_room_or_not(orchestrator: Orchestrator, worker: ScriptedWorker) -> None:
    orchestrator.pool.reserve(new_job())
    orchestrator.pool.hold(new_job(), worker.record())
    assert orchestrator.pool.members()[0].reserved["calls"] == 2


def test_many_at_once_never_exceed_capacity(orchestrator: Orchestrator, make_worker: MakeWorker) -> None:
    make_worker(capacity=3)
    barrier = threading.Barrier(12)
    outcomes: list[bool] = []

    def reserve() -> None:
        barrier.wait()
        try:
            orchestrator.pool.reserve(new_job())
            outcomes.append(True)
        except PoolBusy:
            outcomes.append(False)

    threads = [threading.Thread(target=reserve) for _ in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count(True) == 3


def test_suspended_worker_comes_back_with_its_next_beat(
    orchestrator: Orchestrator, worker: ScriptedWorker
) -> None:
    orchestrator.pool.suspend(worker.id)
    until(lambda: orchestrator.pool.members()[0].trusted, "it has said again that it lives")
    worker.kill()
    last = None

    def silent() -> bool:
        nonlocal last
        before, last = last, orchestrator.client.pexpiretime(f"docexpress:1:worker:{worker.id}")
        return before == last

    until(silent, "it is silent")
    orchestrator.pool.suspend(worker.id)
    for _ in range(3):
        with pytest.raises(PoolBusy):
            orchestrator.pool.reserve(new_job())
    until(lambda: orchestrator.pool.members() == [], "its record lapses")
    with pytest.raises(NoWorker, match="no worker with the model tiny is registered"):
        orchestrator.pool.reserve(new_job())


def test_suspending_a_worker_that_is_gone_does_nothing(orchestrator: Orchestrator) -> None:
    orchestrator.pool.suspend("nobody")
    assert orchestrator.pool.members() == []
