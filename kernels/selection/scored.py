"""What all policies have in common that give every entry a score and keep the best."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass, fields, replace

import torch
from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True, slots=True)
class ScoredPolicy(SelectionPolicy):
    """Sinks and recent tokens exactly; of the entries between, those that `choose` takes by their scores.

    sinks   first tokens that always stay
    recent  share of the budget for the last tokens
    temper  multiplies log-weights in attention
    """

    budget: int
    seed: int = 0
    sinks: int = 32
    recent: float = 0.125
    temper: float = 1.0

    def __post_init__(self) -> None:
        for name in ("recent", "temper"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 to 1")
        if self.sinks < 0 or self.kept < 1:
            raise ValueError(
                f"entries is {self.budget}; allowed is more than its {self.sinks} sinks and"
                f" {self.recent_tokens} recent tokens"
            )

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def recent_tokens(self) -> int:
        """Tokens kept exactly at the end."""
        return int(self.budget * self.recent)

    @property
    def kept(self) -> int:
        """Entries between sinks and recent tokens."""
        return self.budget - self.sinks - self.recent_tokens

    @property
    def parameters(self) -> dict[str, str | int | float]:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"entries": own.pop("budget"), **own}

    @abstractmethod
    def score(self, cache: CompressedKV, known: WeightedKV, observed: Observation | None) -> Tensor:
        """What one token of each entry is worth, [*rows, C + S] float32, not negative.

        known holds the C entries of the cache and after them the S new ones.
        """

    def choose(self, weights: Tensor, scores: Tensor, seen: int) -> tuple[Tensor, Tensor]:
        """Which `kept` of the entries between stay, and what each weighs then.

        weights, scores [*rows, T] -> places [*rows, kept] int64, ascending, weights [*rows, kept] float32.
        Here: the best scores, each entry for itself alone.
        """
        best = scores.topk(self.kept, dim=-1, sorted=False).indices.sort(dim=-1).values
        return best, torch.ones_like(scores[..., : self.kept])

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        known, seen = concat([cache.entries, segment]), cache.seen + len(segment)
        scores = self.score(cache, known, observed)
        if len(known) <= self.entries:
            return CompressedKV(known, seen, scores)
        end = len(known) - self.recent_tokens
        between = slice(self.sinks, end)
        places, weights = self.choose(known.weights[..., between], scores[..., between], seen)
        chosen = replace(known.slice(self.sinks, end).gather(places), weights=weights)
        entries = concat([known.slice(0, self.sinks), chosen, known.slice(end, len(known))])
        kept = [scores[..., : self.sinks], scores[..., between].gather(-1, places), scores[..., end:]]
        return CompressedKV(entries, seen, torch.cat(kept, dim=-1))

    def log_weights(self, entries: WeightedKV) -> Tensor:
        return entries.weights.log() * self.temper
