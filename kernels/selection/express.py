"""Sinks and recent tokens exactly, everything between them as an Express stream."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from typing import ClassVar

from kernels.express import ExpressStream
from kernels.halving import named_halving
from kernels.schedule import Schedule
from kernels.selection.streamed import StreamedPolicy

_SMALLEST = 2  # n_out of the smallest stream


@dataclass(frozen=True, slots=True)
class ExpressPolicy(StreamedPolicy):
    """The paper's schedule between the sinks and a recent window of at least half the budget.

    n_out is the largest power of two for which the stream's size bound fits beside the sinks and a recent
    window of half the budget (rounded up). The stream is rarely at its bound; whatever it leaves free goes to
    the recent window: a token enters the stream only when the budget would be exceeded otherwise. So
    documents of up to `budget` tokens stay exact, and later the cache is full but for what the last halvings
    freed (99% on average, 69% just after a round's end).

    m_bar    most halvings of a chunk: log2(n_out) by default, log2(n_out) + 1 at most
    """

    name: ClassVar[str] = "express"
    m_bar: int | None = None

    @property
    def further_parameters(self) -> dict[str, str | int | float]:
        return {"m_bar": self.schedule.m_bar}

    @property
    def schedule(self) -> Schedule:
        """What the stream between sinks and recent tokens looks like."""
        n_out = _SMALLEST
        while self._schedule(2 * n_out).bound <= self.room:
            n_out *= 2
        return self._schedule(n_out)

    @property
    def smallest(self) -> int:
        return self._schedule(_SMALLEST).bound

    def streamed(self, seen: int) -> int:
        """As few as the budget allows.

        One token more in the stream frees its place and takes at most one there, so the size of the cache
        never grows as tokens go over, and the least number is found by bisection.
        """
        schedule, most = self.schedule, seen - self.sinks - self.recent
        return bisect_left(
            range(most), True, key=lambda tokens: seen - tokens + schedule.size(tokens) <= self.budget
        )

    def stream(self) -> ExpressStream:
        return ExpressStream(self.schedule, named_halving(self.halving, centred=self.centred), self.seed)

    def _schedule(self, n_out: int) -> Schedule:
        schedule = Schedule.of(n_out)
        if self.m_bar is None:
            return schedule
        if self.m_bar < 0:
            raise ValueError(f"m_bar is {self.m_bar}; allowed is 0 or more")
        return Schedule(n_out, min(self.m_bar, schedule.m_bar + 1))
