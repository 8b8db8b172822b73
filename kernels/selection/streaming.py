"""The first tokens and the latest ones; what lies between is forgotten.

Source: StreamingLLM (Xiao, Tian, Chen, Han, Lewis, arXiv 2309.17453, 2023).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True, slots=True)
class StreamingPolicy(SelectionPolicy):
    """`sinks` first tokens and the latest budget - sinks, all with weight 1: weights do not sum to `seen`."""

    name: ClassVar[str] = "streaming"
    budget: int
    seed: int = 0
    sinks: int = 32

    def __post_init__(self) -> None:
        if not 0 <= self.sinks < self.budget:
            raise ValueError(f"sinks is {self.sinks}; entries={self.budget} allows 0 to {self.budget - 1}")

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return {"entries": self.budget, "seed": self.seed, "sinks": self.sinks}

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        seen = cache.seen + len(segment)
        known = concat([cache.entries, segment])
        if len(known) > self.budget:
            recent = known.slice(len(known) - (self.budget - self.sinks), len(known))
            known = concat([known.slice(0, self.sinks), recent])
        return CompressedKV(known, seen)
