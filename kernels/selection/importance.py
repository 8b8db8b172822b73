"""A weighted sample of the past: the more attention a token gets, the surer it stays.

Source: `express.md` section 7, lesson 2. An entry's chance pi is proportional to its share of the observed
attention (mixed with a little of a uniform one, so that nothing is impossible) and capped at 1; what stays
weighs 1 / pi times as much. Sums over the sample are then right on average; what is sure to stay is exact.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.selection.draw import inclusion, systematic
from kernels.selection.expected_attention import expected_scores
from kernels.selection.observation import Observation
from kernels.selection.observing import ObservingPolicy
from kernels.selection.scores import attention_scores
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class ImportancePolicy(ObservingPolicy):
    """One systematic draw in the order of the tokens, with chances proportional to weight times score.

    With a question the score is the attention of its tokens, the largest of `width` neighbours. Without one
    it is Expected Attention of the segment's last queries, each entry for itself.

    floor  share of a uniform distribution in the chances
    """

    name: ClassVar[str] = "importance"
    recent: float = 0.25
    tail: int = 128
    floor: float = 0.01

    def __post_init__(self) -> None:
        super(ImportancePolicy, self).__post_init__()
        if not 0.0 < self.floor <= 1.0:
            raise ValueError(f"floor is {self.floor}; allowed is more than 0, up to 1")

    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        if self.question:
            return attention_scores(observed, self.log_weights(known), "mean")
        return expected_scores(known, observed)

    def around(self, scores: Tensor) -> Tensor:
        return super(ImportancePolicy, self).around(scores) if self.question else scores

    def choose(self, weights: Tensor, scores: Tensor, seen: int) -> tuple[Tensor, Tensor]:
        chances = inclusion(weights * scores, weights, self.kept, self.floor)
        places = systematic(chances, self.kept, self.seed, seen, shared=self.shared)
        return places, (weights / chances).gather(-1, places).float()
