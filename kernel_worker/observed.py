"""A probe's queries over a state and a segment, rotated to where they stand: what a policy may observe."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_worker.cache import Positions
from kernel_worker.prompt import PromptTemplate
from kernel_worker.rotary import Rotary, dense_positions
from kernels.selection.observation import Observation, Probe
from kernels.weighted_kv import WeightedKV


@dataclass(frozen=True)
class Observed(Observation):
    """Made by the engine; valid as long as the tensors it was made from.

    known        entries of the state and of the segment, [layers, kv_heads, C + S, d], un-rotated
    raw_queries  [layers, Hq, P, d], un-rotated
    first        the place of the first query
    """

    known: WeightedKV
    raw_queries: Tensor
    first: int
    rotary: Rotary
    positions: Positions
    scale: float
    own: int

    def keys(self, layer: int) -> Tensor:
        keys = self.known.keys[layer]
        if self.positions == "dense":
            places = dense_positions(keys.shape[1], 0, keys.device)
            return self.rotary.rotate(keys.unsqueeze(0), self.rotary.angles(places, keys))[0]
        angles = self.rotary.angles(self.known.tokens[layer].long(), keys)
        return self.rotary.rotate(keys.unsqueeze(1), angles)[:, 0]

    def queries(self, layer: int) -> Tensor:
        raw = self.raw_queries[layer]
        places = dense_positions(raw.shape[1], self.first, raw.device)
        rotated = self.rotary.rotate(raw.unsqueeze(0), self.rotary.angles(places, raw))[0]
        return rotated.reshape(self.known.rows[1], -1, *raw.shape[1:])


def probe_ids(probe: Probe, prompt: PromptTemplate, segment_ids: Sequence[int]) -> tuple[list[int], int]:
    """The tokens of a probe after a segment, and how many of them are the segment's own last ones."""
    if probe.kind == "question":
        return prompt.instruction_ids(probe.text), 0
    if probe.kind == "tail":
        own = min(probe.length, len(segment_ids))
        return list(segment_ids[len(segment_ids) - own :]), own
    return [*prompt.instruction_ids(probe.text), *segment_ids], 0


def stacked(queries: list[Tensor], layers: int) -> Tensor:
    """What a cache recorded, [Hq, S, d] for each layer of each call -> [layers, Hq, tokens, d]."""
    calls = [torch.stack(queries[start : start + layers]) for start in range(0, len(queries), layers)]
    return torch.cat(calls, dim=2)
