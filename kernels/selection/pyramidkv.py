"""More entries for the lower layers, fewer for the upper ones, chosen as SnapKV does.

Source: PyramidKV (Cai, Zhang, Gao, Liu, Li, Liu, Lu, Xiong, Dong, Hu, Xiao, arXiv 2406.02069, 2024).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from kernels.selection.snapkv import SnapKVPolicy

HIDDEN = 1e-30
"""Weight of an entry beyond its layer's share: attention does not see it, the next fold drops it first."""


@dataclass(frozen=True, slots=True)
class PyramidKVPolicy(SnapKVPolicy):
    """`budget` entries a layer on average, falling evenly from the first layer to the last.

    All layers of a state hold equally many entries, so that one call serves them: upper layers are filled up
    with entries that weigh next to nothing. The state takes as much memory as if all layers were the widest.

    steepness  the first layer has (1 + steepness), the last one (1 - steepness) times the mean between sinks
               and recent tokens
    """

    name: ClassVar[str] = "pyramidkv"
    steepness: float = 0.5

    def __post_init__(self) -> None:
        super(PyramidKVPolicy, self).__post_init__()
        if not 0.0 <= self.steepness <= 1.0:
            raise ValueError(f"steepness is {self.steepness}; allowed is 0 to 1")

    @property
    def entries(self) -> int:
        return self.sinks + self.kept + self.recent_tokens

    @property
    def kept(self) -> int:
        """Entries between in the widest layer."""
        return int(self._mean_kept * (1.0 + self.steepness))

    @property
    def _mean_kept(self) -> int:
        return self.budget - self.sinks - self.recent_tokens

    def choose(self, weights: Tensor, scores: Tensor, seen: int) -> tuple[Tensor, Tensor]:
        # What a layer has hidden before stays behind all others.
        ranked = torch.where(weights < 1.0, -1.0, scores)
        order = ranked.topk(self.kept, dim=-1).indices
        shown = torch.arange(self.kept, device=scores.device) < self._layer_kept(scores)
        places, sorting = order.sort(dim=-1)
        shown = shown.expand(order.shape).gather(-1, sorting) & (ranked.gather(-1, places) >= 0)
        return places, torch.where(shown, 1.0, HIDDEN)

    def _layer_kept(self, scores: Tensor) -> Tensor:
        """Entries shown in each layer, [layers, 1, 1]."""
        layers = scores.shape[0]
        slope = torch.linspace(1.0 + self.steepness, 1.0 - self.steepness, layers, device=scores.device)
        return (slope * self._mean_kept).long().clamp_min(1).view(layers, *[1] * (scores.dim() - 1))
