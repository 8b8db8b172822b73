"""The entries that the latest queries attend to most.

Source: SnapKV (Li, Huang, Yang, Venkitesh, Locatelli, Ye, Cai, Lewis, Chen, arXiv 2404.14469, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.observing import ObservingPolicy
from kernels.selection.scores import Reduction, attention_scores
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class SnapKVPolicy(ObservingPolicy):
    """Mean attention of the observed queries, averaged over `width` neighbours; the best entries stay."""

    name: ClassVar[str] = "snapkv"
    width: int = 5

    @property
    def pooling(self) -> Reduction:
        return "mean"

    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        return attention_scores(observed, self.log_weights(known), "mean")
