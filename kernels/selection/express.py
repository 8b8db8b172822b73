"""Sinks and recent tokens exactly, everything between them as an Express stream."""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from torch import Tensor

from kernels.express import ExpressStream
from kernels.halving import Halving, Rule, kernel_halving, uniform_halving
from kernels.schedule import Schedule
from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat

_SMALLEST = 2  # n_out of the smallest stream
HALVINGS = ("greedy", "threshold", "uniform")


@dataclass(frozen=True, slots=True)
class ExpressPolicy(SelectionPolicy):
    """`sinks` first tokens, an Express stream, and recent tokens, `budget` entries at most.

    n_out is the largest power of two for which the stream's size bound fits beside the sinks and a recent
    window of half the budget (rounded up). The stream is rarely at its bound; whatever it leaves free goes to
    the recent window: a token enters the stream only when the budget would be exceeded otherwise. So
    documents of up to `budget` tokens stay exact, and later the cache is full but for what the last halvings
    freed (99% on average, 69% just after a round's end). Entries are in the order of their tokens.

    seed     decides every random choice
    sinks    first tokens kept exactly
    temper   the log-weights of entries are multiplied by it in attention; 1.0 is the paper's. Less, because
             full weights in the tail mislead a model that was never trained with them
    halving  greedy, threshold (the paper's) or uniform (a fair coin)
    centred  whether halving subtracts the mean key of a bucket
    m_bar    most halvings of a chunk: log2(n_out) by default, log2(n_out) + 1 at most
    """

    name: ClassVar[str] = "express"
    budget: int
    seed: int = 0
    sinks: int = 32
    temper: float = 0.5
    halving: str = "greedy"
    centred: bool = True
    m_bar: int | None = None

    def __post_init__(self) -> None:
        if self.sinks < 0:
            raise ValueError(f"sinks is {self.sinks}; allowed is 0 or more")
        if not 0.0 <= self.temper <= 1.0:
            raise ValueError(f"temper is {self.temper}; allowed is 0 to 1")
        if self.halving not in HALVINGS:
            raise ValueError(f"halving is {self.halving!r}; allowed are {', '.join(HALVINGS)}")
        if self.m_bar is not None and self.m_bar < 0:
            raise ValueError(f"m_bar is {self.m_bar}; allowed is 0 or more")
        smallest = self._schedule(_SMALLEST).bound
        if smallest > self._room:
            raise ValueError(
                f"entries is {self.budget}; allowed is {2 * (self.sinks + smallest)} or more: {self.sinks}"
                f" sinks, {smallest} entries for the smallest stream, as many recent tokens as these together"
            )

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def recent(self) -> int:
        """Tokens at the end that are always exact, once there are so many beside the sinks."""
        return (self.budget + 1) // 2

    @property
    def schedule(self) -> Schedule:
        """What the stream between sinks and recent tokens looks like."""
        n_out = _SMALLEST
        while self._schedule(2 * n_out).bound <= self._room:
            n_out *= 2
        return self._schedule(n_out)

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return {
            "entries": self.budget,
            "seed": self.seed,
            "sinks": self.sinks,
            "temper": self.temper,
            "halving": self.halving,
            "centred": str(self.centred).lower(),
            "m_bar": self.schedule.m_bar,
        }

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        entries, seen, schedule = cache.entries, cache.seen + len(segment), self.schedule
        if seen <= self.budget:
            return CompressedKV(concat([entries, segment]), seen)
        before, after = self._streamed(schedule, cache.seen), self._streamed(schedule, seen)
        head = min(self.sinks, cache.seen)
        middle = head + schedule.size(before)
        missing = self.sinks - head  # sinks that this segment still brings
        stream = ExpressStream(schedule, self._halve(), self.seed)
        # Old recent tokens go first, then the segment's own: two pushes copy less than joining them would.
        old = entries.slice(middle, len(entries))
        from_old = min(after - before, len(old))
        tail = stream.push(entries.slice(head, middle), before, old.slice(0, from_old))
        from_new = missing + after - before - from_old
        tail = stream.push(tail, before + from_old, segment.slice(missing, from_new))
        exact = [old.slice(from_old, len(old)), segment.slice(from_new, len(segment))]
        return CompressedKV(concat([entries.slice(0, head), segment.slice(0, missing), tail, *exact]), seen)

    def log_weights(self, entries: WeightedKV) -> Tensor:
        """temper * log w: sinks and recent tokens have weight 1, hence 0."""
        return entries.weights.log() * self.temper

    @property
    def _room(self) -> int:
        return self.budget - self.sinks - self.recent

    def _schedule(self, n_out: int) -> Schedule:
        schedule = Schedule.of(n_out)
        return schedule if self.m_bar is None else Schedule(n_out, min(self.m_bar, schedule.m_bar + 1))

    def _streamed(self, schedule: Schedule, seen: int) -> int:
        """How many of `seen` tokens are in the stream: as few as the budget allows.

        One token more in the stream frees its place and takes at most one there, so the size of the cache
        never grows as tokens go over, and the least number is found by bisection.
        """
        if seen <= self.budget:
            return 0
        most = seen - self.sinks - self.recent
        return bisect_left(
            range(most), True, key=lambda tokens: seen - tokens + schedule.size(tokens) <= self.budget
        )

    def _halve(self) -> Halving:
        if self.halving == "uniform":
            return uniform_halving
        rule: Rule = "greedy" if self.halving == "greedy" else "threshold"
        return partial(kernel_halving, rule=rule, centred=self.centred)
