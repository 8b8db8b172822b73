"""The entries with the smallest keys.

Source: Devoto, Zhao, Scardapane, Minervini, "A Simple and Effective L2 Norm-Based Strategy for KV Cache
Compression", arXiv 2406.11430, 2024.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV
from kernels.selection.scored import ScoredPolicy
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True, slots=True)
class KnormPolicy(ScoredPolicy):
    """Keys of small norm get much attention in many models; nothing else is looked at."""

    name: ClassVar[str] = "knorm"

    def score(self, cache: CompressedKV, known: WeightedKV, observed: Observation | None) -> Tensor:
        sizes: Tensor = torch.linalg.vector_norm(known.keys.float(), dim=-1)
        return 1.0 / (1.0 + sizes)
