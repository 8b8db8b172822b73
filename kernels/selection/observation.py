"""What a policy may know besides the entries: queries like those that will come, and what they look at."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True)
class Probe:
    """Which tokens' queries a policy wants to see after every segment.

    question  `text`, an instruction, is run after the segment, and its own entries are thrown away
    tail      the last `length` tokens of the segment itself: no instruction is known
    repeat    `text` and then the segment's tokens once more: what is needed to say them again
    """

    kind: Literal["question", "tail", "repeat"]
    text: str = ""
    length: int = 64


class Observation(ABC):
    """Queries of a probe over C entries of a cache and the S of a segment after them.

    Given one layer at a time: all layers at once would be larger than the state. Queries and keys are rotated
    to where they stand, so that their products are the logits that the model itself computes.

    scale  of the softmax
    own    the last `own` of the C + S entries are the queries' own: query i sees C + S - own + i + 1 entries;
           0 for a probe that came after the segment and sees everything
    """

    scale: float
    own: int

    @abstractmethod
    def keys(self, layer: int) -> Tensor:
        """[kv_heads, C + S, d]"""

    @abstractmethod
    def queries(self, layer: int) -> Tensor:
        """[kv_heads, G, P, d]: P queries of each of the G query heads that share a KV head."""

    def logits(self, layer: int) -> Tensor:
        """[kv_heads, G, P, C + S] float32, without weights; -inf where a query does not see an entry."""
        keys = self.keys(layer).float()
        logits = self.queries(layer).float() @ keys.transpose(-1, -2).unsqueeze(1) * self.scale
        if self.own:
            entries, queries = keys.shape[-2], logits.shape[-2]
            mask = torch.ones(queries, entries, dtype=torch.bool, device=keys.device)
            logits = logits.masked_fill(mask.triu_(entries - self.own + 1), -torch.inf)
        return logits
