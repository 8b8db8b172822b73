"""Policies that score entries by what a probe's queries attend to."""

from __future__ import annotations

from abc import abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.selection.observation import Observation, Probe
from kernels.selection.policy import CompressedKV
from kernels.selection.scored import ScoredPolicy
from kernels.selection.scores import Reduction, pooled, shared_scores
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class ObservingPolicy(ScoredPolicy):
    """The score of an entry is the largest that any probe gave it.

    A question that is asked after each segment finds what answers it while that is new; later segments draw
    its attention away, and must not make the policy forget: hence the maximum, which travels in the state.

    question  an instruction to observe after each segment; "" where none is known
    tail      without a question: how many of a segment's own last queries are observed
    width     neighbours among the new tokens that share their scores (odd; 1 is off)
    shared    one score for all layers and heads, which then keep the same tokens
    """

    question: str = ""
    tail: int = 64
    width: int = 15
    shared: bool = False

    def __post_init__(self) -> None:
        super(ObservingPolicy, self).__post_init__()
        for name in ("tail", "width"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 1 or more")
        if self.width % 2 == 0:
            raise ValueError(f"width is {self.width}; allowed are odd numbers")

    @property
    def pooling(self) -> Reduction:
        return "max"

    @property
    def probe(self) -> Probe:
        return Probe("question", self.question) if self.question else Probe("tail", length=self.tail)

    def around(self, scores: Tensor) -> Tensor:
        """The scores [*rows, S] of new tokens, with what their neighbours lend them."""
        return pooled(scores, self.width, self.pooling)

    @abstractmethod
    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        """What one token of each entry is worth to the observed queries: [*rows, C + S] float32."""

    def score(self, cache: CompressedKV, known: WeightedKV, observed: Observation | None) -> Tensor:
        if observed is None:
            raise ValueError(
                f"observed is missing; the policy {self.name!r} chooses by what queries attend to"
            )
        scores, old = self.attended(known, observed), len(cache.entries)
        if self.shared:
            scores = shared_scores(scores, self.sinks)
        # Entries of the cache are no neighbours any more: they were pooled when they were new.
        known_scores, new_scores = scores[..., :old], self.around(scores[..., old:])
        if cache.scores is not None:
            known_scores = torch.maximum(known_scores, cache.scores)
        return torch.cat([known_scores, new_scores], dim=-1)
