"""The passages that the question looks at, whole, and the same ones in every layer and head.

Own work. A head alone often keeps the words that a question names and drops those that answer it; all heads
together know the passage, and what stands behind a word belongs to it rather than what stands before.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.observing import ObservingPolicy
from kernels.selection.scores import attention_scores, spread
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class PassagesPolicy(ObservingPolicy):
    """An entry's score is the largest attention of any observed query; rows' shares of it are averaged.

    before, after  tokens around a token that are lent its score, less with the distance
    """

    name: ClassVar[str] = "passages"
    shared: bool = True
    before: int = 8
    after: int = 24

    def __post_init__(self) -> None:
        super(PassagesPolicy, self).__post_init__()
        for name in ("before", "after"):
            if getattr(self, name) < 0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 or more")

    def around(self, scores: Tensor) -> Tensor:
        # All rows are alike here: one of them is enough work.
        if self.shared:
            return spread(scores[:1, :1], self.before, self.after).expand_as(scores)
        return spread(scores, self.before, self.after)

    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        return attention_scores(observed, self.log_weights(known), "max")
