"""A uniform sample of the past with equal weights: what every coreset has to beat."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import torch
from torch import Tensor

from kernels.seeds import hashes
from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True, slots=True)
class UniformPolicy(SelectionPolicy):
    """Sinks and the recent half of the budget exactly; of the tokens between, a uniform sample per row.

    Every token has a hash of (seed, row, token index), and the tokens with the smallest hashes stay (bottom-k
    sampling): a sample without replacement that never depends on how the stream was cut. Each of the
    m sampled of T tokens weighs T / m. `temper` multiplies their log-weights in attention.
    """

    name: ClassVar[str] = "uniform"
    budget: int
    seed: int = 0
    sinks: int = 32
    temper: float = 0.5

    def __post_init__(self) -> None:
        if not 0 <= self.sinks < self.budget - self.recent:
            raise ValueError(
                f"entries is {self.budget}; allowed is more than {2 * self.sinks + 1}, room for {self.sinks}"
                " sinks, a sample, and as many recent tokens as these together"
            )
        if not 0.0 <= self.temper <= 1.0:
            raise ValueError(f"temper is {self.temper}; allowed is 0 to 1")

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def recent(self) -> int:
        """Tokens kept exactly at the end."""
        return (self.budget + 1) // 2

    @property
    def parameters(self) -> dict[str, str | int | float]:
        return {"entries": self.budget, "seed": self.seed, "sinks": self.sinks, "temper": self.temper}

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        seen = cache.seen + len(segment)
        known = concat([cache.entries, segment])
        if len(known) <= self.budget:
            return CompressedKV(known, seen)
        end = len(known) - self.recent
        kept = self.budget - self.sinks - self.recent
        pool = known.slice(self.sinks, end)
        sample = pool.gather(self._smallest(pool.tokens, kept))
        weight = (seen - self.sinks - self.recent) / kept
        sample = replace(sample, weights=torch.full_like(sample.weights, weight))
        return CompressedKV(concat([known.slice(0, self.sinks), sample, known.slice(end, len(known))]), seen)

    def _smallest(self, tokens: Tensor, kept: int) -> Tensor:
        """Places of the `kept` tokens of each row with the smallest hashes, in order."""
        rows = torch.arange(tokens[..., 0].numel(), device=tokens.device).view(*tokens.shape[:-1], 1)
        order = hashes(self.seed, rows, tokens.to(torch.int64))
        return order.topk(kept, dim=-1, largest=False, sorted=False).indices.sort(dim=-1).values

    def log_weights(self, entries: WeightedKV) -> Tensor:
        """temper * log w: sinks and recent tokens have weight 1, hence 0."""
        return entries.weights.log() * self.temper
