"""Every token, exactly: the policy to compare others with."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True, slots=True)
class ExactPolicy(SelectionPolicy):
    """Keeps all of up to `budget` tokens with weight 1, and refuses more."""

    name: ClassVar[str] = "exact"
    budget: int
    seed: int = 0

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return {"entries": self.budget, "seed": self.seed}

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        """All tokens of both. ValueError where these are more than the budget."""
        check_segment(cache, segment)
        seen = cache.seen + len(segment)
        if seen > self.budget:
            raise ValueError(
                f"segment brings the tokens to {seen}; the policy 'exact' keeps each of them, and"
                f" entries={self.budget} allows no more"
            )
        return CompressedKV(concat([cache.entries, segment]), seen)
