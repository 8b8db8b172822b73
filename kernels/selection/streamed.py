"""What policies around a stream share: sinks exactly, a stream of points, recent tokens exactly."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from kernels.halving import HALVINGS
from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat


class Stream(Protocol):
    """Points that stand for ever more tokens: a pure function of them, however they are cut into pieces."""

    def push(self, held: WeightedKV, tokens: int, new: WeightedKV) -> WeightedKV:
        """The points after `new`, if `held` are those after `tokens` tokens."""
        ...


@dataclass(frozen=True, slots=True)
class StreamedPolicy(SelectionPolicy):
    """At most `budget` entries, in the order of their tokens; up to `budget` tokens all are exact.

    seed     decides every random choice
    sinks    first tokens kept exactly
    temper   the log-weights of entries are multiplied by it in attention; 1.0 is the papers'. Less, because
             full weights in the tail mislead a model that was never trained with them
    halving  greedy, threshold (the paper's) or uniform (a fair coin)
    centred  whether halving subtracts the mean key of a bucket
    """

    budget: int
    seed: int = 0
    sinks: int = 32
    temper: float = 0.5
    halving: str = "greedy"
    centred: bool = True

    def __post_init__(self) -> None:
        if self.sinks < 0:
            raise ValueError(f"sinks is {self.sinks}; allowed is 0 or more")
        if not 0.0 <= self.temper <= 1.0:
            raise ValueError(f"temper is {self.temper}; allowed is 0 to 1")
        if self.halving not in HALVINGS:
            raise ValueError(f"halving is {self.halving!r}; allowed are {', '.join(HALVINGS)}")
        if self.smallest > self.room:
            raise ValueError(
                f"entries is {self.budget}; allowed is {2 * (self.sinks + self.smallest)} or more:"
                f" {self.sinks} sinks, {self.smallest} entries for the smallest stream, as many recent tokens"
                " as these together"
            )

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return {
            "entries": self.budget,
            "seed": self.seed,
            "sinks": self.sinks,
            "temper": self.temper,
            "halving": self.halving,
            "centred": str(self.centred).lower(),
            **self.further_parameters,
        }

    @property
    def further_parameters(self) -> dict[str, str | int | float]:
        """What a subclass adds to `parameters`."""
        return {}

    @property
    def recent(self) -> int:
        """Tokens at the end that are always exact, once there are so many: half the budget."""
        return (self.budget + 1) // 2

    @property
    def room(self) -> int:
        """Entries that the stream may have."""
        return self.budget - self.sinks - self.recent

    @property
    @abstractmethod
    def smallest(self) -> int:
        """The least room that a stream can do with."""

    @abstractmethod
    def streamed(self, seen: int) -> int:
        """How many of `seen` tokens, when more than the budget, are in the stream; it never falls."""

    @abstractmethod
    def stream(self) -> Stream:
        """What takes up the tokens between sinks and recent ones."""

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        entries, seen = cache.entries, cache.seen + len(segment)
        if seen <= self.budget:
            return CompressedKV(concat([entries, segment]), seen)
        before = self.streamed(cache.seen) if cache.seen > self.budget else 0
        moving = self.streamed(seen) - before
        head = min(self.sinks, cache.seen)
        middle = len(entries) - (cache.seen - head - before)  # where the old recent tokens begin
        missing = self.sinks - head  # sinks that this segment still brings
        # Old recent tokens go first, then the segment's own: two pushes copy less than joining them would.
        stream, old = self.stream(), entries.slice(middle, len(entries))
        from_old = min(moving, len(old))
        from_new = missing + moving - from_old
        points = stream.push(entries.slice(head, middle), before, old.slice(0, from_old))
        points = stream.push(points, before + from_old, segment.slice(missing, from_new))
        exact = [old.slice(from_old, len(old)), segment.slice(from_new, len(segment))]
        return CompressedKV(concat([entries.slice(0, head), segment.slice(0, missing), points, *exact]), seen)

    def log_weights(self, entries: WeightedKV) -> Tensor:
        """temper * log w: sinks and recent tokens have weight 1, hence 0."""
        return entries.weights.log() * self.temper
