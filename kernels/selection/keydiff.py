"""The entries whose keys differ most from the others.

Source: KeyDiff (Park, Jones, Morse, Goel, Lee, Lott, arXiv 2504.15364, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor
from torch.nn import functional

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV
from kernels.selection.scored import ScoredPolicy
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class KeyDiffPolicy(ScoredPolicy):
    """One minus the cosine of an entry's key, un-rotated, and the mean direction of its row's keys."""

    name: ClassVar[str] = "keydiff"

    def score(self, cache: CompressedKV, known: WeightedKV, observed: Observation | None) -> Tensor:
        directions = functional.normalize(known.keys.float(), dim=-1)
        anchor = functional.normalize(directions.mean(-2, keepdim=True), dim=-1)
        return 1.0 - (directions * anchor).sum(-1)
