"""Compute slots: order of arrival, a bounded queue, and callers that go away."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from kernel_worker.admission import ComputeSlots
from kernel_worker.calls import Call
from kernel_worker.errors import CallerGone, WorkerBusy, WorkerDraining
from tests.kernel_worker.server.waiting import PATIENCE, until


@pytest.fixture
def slots() -> Iterator[ComputeSlots]:
    slots = ComputeSlots(capacity=1, waiting=2)
    yield slots
    slots.close()


@pytest.fixture
def callers() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(8) as pool:
        yield pool


class Door:
    """Work that holds its slot until it is let go."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.open = threading.Event()

    def __call__(self) -> str:
        self.entered.set()
        assert self.open.wait(PATIENCE)
        return "through"


def test_the_result_comes_back(slots: ComputeSlots) -> None:
    assert slots.run(Call(), lambda: 7) == 7
    assert slots.load == 0


def test_an_exception_comes_back(slots: ComputeSlots) -> None:
    def work() -> None:
        raise KeyError("inside")

    with pytest.raises(KeyError, match="inside"):
        slots.run(Call(), work)


def test_waiting_calls_are_served_in_order_of_arrival(
    slots: ComputeSlots, callers: ThreadPoolExecutor
) -> None:
    door, order = Door(), list[int]()
    callers.submit(slots.run, Call(), door)
    assert door.entered.wait(PATIENCE)
    waiting = []
    for number in range(2):
        waiting.append(callers.submit(slots.run, Call(), lambda number=number: order.append(number)))
        until(lambda number=number: slots.load == number + 2)
    assert order == []
    door.open.set()
    for future in waiting:
        future.result(PATIENCE)
    assert order == [0, 1]


def test_beyond_the_queue_a_call_is_refused(slots: ComputeSlots, callers: ThreadPoolExecutor) -> None:
    door = Door()
    running = [callers.submit(slots.run, Call(), door) for _ in range(3)]
    until(lambda: slots.load == 3)
    with pytest.raises(WorkerBusy, match="3 calls"):
        slots.run(Call(), lambda: None)
    door.open.set()
    assert [future.result(PATIENCE) for future in running] == ["through"] * 3
    assert slots.run(Call(), lambda: "free again") == "free again"


def test_a_caller_that_goes_away_leaves_the_queue(slots: ComputeSlots, callers: ThreadPoolExecutor) -> None:
    door, call, ran = Door(), Call(), threading.Event()
    running = callers.submit(slots.run, Call(), door)
    assert door.entered.wait(PATIENCE)
    waiting = callers.submit(slots.run, call, ran.set)
    until(lambda: slots.load == 2)
    call.end()
    with pytest.raises(CallerGone):
        waiting.result(PATIENCE)
    assert slots.load == 1
    door.open.set()
    running.result(PATIENCE)
    slots.close()
    assert not ran.is_set()


def test_draining_turns_away_what_has_not_begun(slots: ComputeSlots, callers: ThreadPoolExecutor) -> None:
    door = Door()
    running = callers.submit(slots.run, Call(), door)
    assert door.entered.wait(PATIENCE)
    waiting = callers.submit(slots.run, Call(), lambda: "never")
    finishing = callers.submit(lambda: slots.run(Call(), lambda: "finished", finishing=True))
    until(lambda: slots.load == 3)
    slots.drain()
    with pytest.raises(WorkerDraining):
        waiting.result(PATIENCE)
    with pytest.raises(WorkerDraining):
        slots.run(Call(), lambda: None)
    door.open.set()
    assert running.result(PATIENCE) == "through"
    assert finishing.result(PATIENCE) == "finished"
    assert slots.run(Call(), lambda: "late", finishing=True) == "late"


def test_a_stream_hands_on_events_and_then_the_error(slots: ComputeSlots) -> None:
    def work(emit: Callable[[int], None]) -> None:
        emit(1)
        emit(2)
        raise RuntimeError("after two")

    events = slots.stream(Call(), work)
    assert next(events) == 1
    assert next(events) == 2
    with pytest.raises(RuntimeError, match="after two"):
        next(events)


def test_closing_a_stream_ends_its_call_and_frees_the_slot(slots: ComputeSlots) -> None:
    call = Call()

    def work(emit: Callable[[int], None]) -> None:
        number = 0
        while True:
            call.check()
            emit(number)
            number += 1

    events = slots.stream(call, work)
    assert next(events) == 0
    events.close()  # type: ignore[attr-defined]
    assert slots.run(Call(), lambda: "free") == "free"


def test_an_ended_call_admits_nothing(slots: ComputeSlots) -> None:
    call, ran = Call(), threading.Event()
    call.end()
    with pytest.raises(CallerGone):
        slots.run(call, ran.set)
    slots.close()
    assert not ran.is_set()
