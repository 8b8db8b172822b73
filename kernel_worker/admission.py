"""Who computes when: a few compute threads, and a bounded queue in order of arrival before them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future, ThreadPoolExecutor
from contextvars import copy_context
from queue import SimpleQueue
from threading import Lock
from typing import TypeVar

from kernel_worker.calls import Call
from kernel_worker.errors import CallerGone, WorkerBusy, WorkerDraining

Answer = TypeVar("Answer")
Event = TypeVar("Event")
DRAINING = "This worker is shutting down; send the call to another one."


class ComputeSlots:
    """Runs work of calls on `capacity` threads of its own; up to `waiting` more calls wait in order.

    Fixed threads, because torch keeps a pool of helper threads for each thread that computes.
    A waiting call whose caller goes away leaves the queue; running work is expected to notice by itself.
    """

    def __init__(self, capacity: int, waiting: int, name: str = "compute") -> None:
        if capacity < 1 or waiting < 0:
            raise ValueError(f"capacity must be at least 1 and waiting 0, got {capacity} and {waiting}")
        self.capacity = capacity
        self._limit = capacity + waiting
        self._threads = ThreadPoolExecutor(capacity, thread_name_prefix=name)
        self._lock = Lock()
        self._admitted: dict[Future[object], bool] = {}  # each with: may it still begin while draining?
        self._draining = False

    @property
    def load(self) -> int:
        """Calls running or waiting."""
        return len(self._admitted)

    @property
    def draining(self) -> bool:
        return self._draining

    def run(self, call: Call, work: Callable[[], Answer], *, finishing: bool = False) -> Answer:
        """The result of `work`, once a thread is free for it.

        `finishing` work frees what earlier work holds: it is admitted while draining and beyond the limit.

        Raises WorkerBusy, WorkerDraining, CallerGone, or what `work` raises.
        """
        results: list[Answer] = []
        self._outcome(self._admit(call, lambda: results.append(work()), finishing))
        return results[0]

    def stream(self, call: Call, work: Callable[[Callable[[Event], None]], None]) -> Iterator[Event]:
        """What `work` hands to its argument, as it comes; ends or raises when `work` does.

        Closing the iterator ends the call. Raises like `run`.
        """
        events: SimpleQueue[Event | None] = SimpleQueue()
        future = self._admit(call, lambda: work(events.put), finishing=False)
        future.add_done_callback(lambda _: events.put(None))
        try:
            while (event := events.get()) is not None:
                yield event
        finally:
            call.end()
        self._outcome(future)

    def soon(self, work: Callable[[], None]) -> None:
        """Runs `work` on a thread behind what waits now; it counts as no call. RuntimeError after `close`."""
        self._threads.submit(work)

    def drain(self) -> None:
        """From now on only what runs, and finishing work, gets a thread."""
        with self._lock:
            self._draining = True
            leaving = [future for future, finishing in self._admitted.items() if not finishing]
        for future in leaving:
            future.cancel()

    def close(self) -> None:
        """Waits for what runs, then ends the threads."""
        self.drain()
        self._threads.shutdown(wait=True, cancel_futures=True)

    def _admit(self, call: Call, work: Callable[[], None], finishing: bool) -> Future[object]:
        call.check()
        with self._lock:
            if self._draining and not finishing:
                raise WorkerDraining(DRAINING)
            if not finishing and len(self._admitted) >= self._limit:
                raise WorkerBusy(
                    f"This worker is busy: {self._limit} calls are running or waiting. Try again later."
                )
            # In the caller's context, so that the log tells what the work is for.
            future: Future[object] = self._threads.submit(copy_context().run, work)
            self._admitted[future] = finishing
        future.add_done_callback(self._leave)
        call.when_gone(future.cancel)
        return future

    def _leave(self, future: Future[object]) -> None:
        with self._lock:
            self._admitted.pop(future, None)

    def _outcome(self, future: Future[object]) -> None:
        try:
            future.result()
        except CancelledError:  # it never began
            if self._draining:
                raise WorkerDraining(DRAINING) from None
            raise CallerGone("The caller went away before its turn came.") from None
