"""Sinks and recent tokens exactly, everything between them as an Express stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.express import ExpressStream
from kernels.halving import named_halving
from kernels.schedule import Schedule
from kernels.selection.streamed import StreamedPolicy


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
        return Schedule.fitting(self.room, self.m_bar)

    @property
    def smallest(self) -> int:
        return Schedule.fitting(0, self.m_bar).bound

    def streamed(self, seen: int) -> int:
        """As few as the budget allows."""
        return self.schedule.streamed(seen - self.sinks, self.budget - self.sinks)

    def stream(self) -> ExpressStream:
        return ExpressStream(self.schedule, named_halving(self.halving, centred=self.centred), self.seed)
