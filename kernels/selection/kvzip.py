"""The entries that are needed to say the text again.

Source: KVzip (Kim, Kim, Kwon, Lee, Yun, Song, arXiv 2505.23416, 2025).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from kernels.selection.observation import Observation, Probe
from kernels.selection.observing import ObservingPolicy
from kernels.selection.scores import attention_scores
from kernels.weighted_kv import WeightedKV

REQUEST = "Repeat the document above, word for word."


@dataclass(frozen=True, slots=True)
class KVzipPolicy(ObservingPolicy):
    """After each segment the model is asked to repeat it; an entry's score is the largest attention it gets.

    It needs no question, serves later unknown ones best, and costs as much as reading the text a second time.
    """

    name: ClassVar[str] = "kvzip"
    width: int = 1

    @property
    def probe(self) -> Probe:
        return Probe("repeat", REQUEST)

    def attended(self, known: WeightedKV, observed: Observation) -> Tensor:
        return attention_scores(observed, self.log_weights(known), "max")
