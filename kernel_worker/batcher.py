"""Who steps the texts that a worker writes together, and when: continuous batching.

A step reads the prompt of one newcomer, and gives every text one token. It is computed on the threads that
compute everything else: in its turn behind what waits there, and between two layers of what is read
meanwhile, as often as leaves both the same time. So a text begins and goes on while a long document is read.
Texts come and go from one step to the next.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from threading import Lock

from kernel_worker.admission import DRAINING
from kernel_worker.batch import Batch
from kernel_worker.calls import Call
from kernel_worker.decoding import DecodeStep, Decoding
from kernel_worker.errors import CallerGone, WorkerDraining
from kernel_worker.model import LoadedModel

log = logging.getLogger(__name__)
Start = Callable[[], tuple[DecodeStep | None, Decoding | None]]
"""Begins a text, on a compute thread: its first step, unless that was taken before, and what follows."""
_AHEAD = 2
"""Checkpoints, each of them a whole state, that a text may be ahead of who stores them."""


class _Seat:
    """One text in the batch, and the steps that its call has not taken yet."""

    def __init__(self, start: Start) -> None:
        self.start: Start | None = start  # until it begins: it holds the state that the text goes on from
        self.decoding: Decoding | None = None  # after its prompt
        self.gone = False
        self._steps: SimpleQueue[DecodeStep | Exception] = SimpleQueue()
        self._put = self.done = 0  # checkpoints: each number is written by one thread alone

    @property
    def rests(self) -> bool:
        """Whether its call is so far behind that no more is to be written. Only between two folds' rows,
        where nothing is lost by leaving the batch."""
        between = self.decoding is not None and self.decoding.row is None
        return between and not self.gone and self._put - self.done >= _AHEAD

    def put(self, step: DecodeStep | Exception) -> None:
        if isinstance(step, DecodeStep) and step.checkpoint is not None:
            self._put += 1
        self._steps.put(step)

    def take(self) -> DecodeStep:
        """The next step, once there is one; raises what came in its place."""
        step = self._steps.get()
        if isinstance(step, Exception):
            raise step
        return step


class Batcher:
    """Safe to call from several threads.

    rows    the most texts at once; who calls `steps` sees to it that there are no more
    submit  has a compute thread run something, behind what waits already
    """

    def __init__(
        self, loaded: LoadedModel, rows: int, submit: Callable[[Callable[[], None]], object]
    ) -> None:
        self.rows = rows
        self._submit = submit
        self._batch = Batch(loaded, rows)  # touched by whoever holds `_stepping`, and by nobody else
        self._stepping = Lock()
        self._lock = Lock()
        self._seats: list[_Seat] = []
        self._submitted = self._draining = False
        self._ended, self._took = 0.0, 0.0

    def __len__(self) -> int:
        """Texts that are being written, their prompts read."""
        return sum(seat.decoding is not None for seat in self._seats)

    def steps(self, call: Call, start: Start) -> Iterator[DecodeStep]:
        """The steps of a text up to its last one, computed ahead of who takes them, by two folds at most.

        Closing the iterator, or the end of the call, frees its row at the next token. Raises CallerGone,
        WorkerDraining where it has not begun before `drain` or ended before `close`, or what went wrong.
        """
        seat = _Seat(start)
        del start  # the seat lets go of it
        with self._lock:
            if self._draining:
                raise WorkerDraining(DRAINING)
            self._seats.append(seat)
        call.when_gone(lambda: seat.put(CallerGone("The caller went away before the text was written.")))
        self._go_on()
        try:
            while (step := seat.take()).finish is None:
                yield step
                if step.checkpoint is not None:
                    seat.done += 1
                    self._go_on()
            yield step
        finally:
            seat.gone = True
            self._go_on()

    def give_way(self) -> None:
        """For other work to call between two layers: a step, where it is the texts' turn."""
        if not self._seats or time.monotonic() - self._ended < self._took:
            return
        if self._stepping.acquire(blocking=False):  # or another compute thread is at it
            try:
                self._step()
            finally:
                self._stepping.release()

    def drain(self) -> None:
        """Lets nobody begin any more; who waits for that gets WorkerDraining."""
        self._end(lambda seat: seat.start is not None)

    def close(self) -> None:
        """Ends all texts; who waits for their next step gets WorkerDraining."""
        self._end(lambda _: True)

    def _end(self, which: Callable[[_Seat], bool]) -> None:
        with self._lock:
            self._draining = True
            ended = [seat for seat in self._seats if which(seat)]
            self._seats = [seat for seat in self._seats if seat not in ended]
        for seat in ended:
            seat.put(WorkerDraining(DRAINING))

    def _go_on(self) -> None:
        with self._lock:
            if self._submitted or all(seat.rests for seat in self._seats):
                return
            self._submitted = True
        try:
            self._submit(self._turn)
        except RuntimeError:  # the threads have ended
            self.close()

    def _turn(self) -> None:
        try:
            with self._stepping:
                self._step()
        finally:
            with self._lock:
                self._submitted = False
            self._go_on()

    def _step(self) -> None:
        began = time.monotonic()
        self._begin_one()
        with self._lock:
            begun = [seat for seat in self._seats if not seat.rests]
        seats = {seat.decoding: seat for seat in begun if seat.decoding is not None}
        for decoding, step in self._stepped(seats):
            seats[decoding].put(step)
            if isinstance(step, Exception) or step.finish is not None:
                self._free(seats[decoding])
        self._ended = time.monotonic()
        self._took = self._ended - began

    def _begin_one(self) -> None:
        """The newcomer that has waited longest. What goes wrong ends its text, and no other."""
        with self._lock:
            seat = next((seat for seat in self._seats if seat.start is not None), None)
            if seat is None or seat.start is None:
                return
            start, seat.start = seat.start, None
        try:
            if not seat.gone:
                step, seat.decoding = start()
                if step is not None:
                    seat.put(step)
        except Exception as error:
            seat.put(error)
        if seat.decoding is None:
            self._free(seat)

    def _stepped(self, seats: dict[Decoding, _Seat]) -> list[tuple[Decoding, DecodeStep | Exception]]:
        try:
            self._settle(seats)
            return self._batch.step()
        except Exception as error:  # of the device, say: none of these texts can go on, but the worker can
            log.exception("A step of %d texts failed.", len(seats))
            self._batch.abandon()
            # Its frames would keep alive what the step had on the device, where memory may just have run out.
            return [(decoding, error.with_traceback(None)) for decoding in seats]

    def _settle(self, seats: dict[Decoding, _Seat]) -> None:
        """Lets go who left, and lets in who came."""
        for decoding, seat in list(seats.items()):
            if seat.gone:
                self._free(seat)
                del seats[decoding]
        for decoding in self._batch.decodings:
            if decoding not in seats:
                self._batch.leave(decoding)
        for decoding in seats:
            if decoding not in self._batch.decodings:
                self._batch.join(decoding)

    def _free(self, seat: _Seat) -> None:
        with self._lock:
            if seat in self._seats:
                self._seats.remove(seat)
