"""Observations for the tests of policies: queries over entries, without a model."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from kernels.selection.observation import Observation
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True)
class Looking(Observation):
    """Queries that are given: known [layers, kv_heads, C + S, d], asked [layers, kv_heads, G, P, d]."""

    known: WeightedKV
    asked: Tensor
    scale: float = 1.0
    own: int = 0

    def keys(self, layer: int) -> Tensor:
        return self.known.keys[layer]

    def queries(self, layer: int) -> Tensor:
        return self.asked[layer]


def looking_at(known: WeightedKV, places: list[int], strength: float = 8.0) -> Looking:
    """One query for each place, the same in every row: that entry's key, made strong."""
    keys = torch.nn.functional.normalize(known.keys[..., places, :], dim=-1)
    return Looking(known, (strength * keys).unsqueeze(2))


def random_look(known: WeightedKV, seed: int, queries: int = 5) -> Looking:
    """Random queries, two heads for each KV head."""
    random = torch.Generator().manual_seed(seed)
    return Looking(known, torch.randn(*known.rows, 2, queries, known.keys.shape[-1], generator=random))


def folded_observing(policy: SelectionPolicy, tokens: WeightedKV, segment: int) -> CompressedKV:
    """The cache after all tokens in segments; random queries are observed after each."""
    cache = CompressedKV(tokens.slice(0, 0), 0)
    while cache.seen < len(tokens):
        new = tokens.slice(cache.seen, min(cache.seen + segment, len(tokens)))
        seen = random_look(concat([cache.entries, new]), cache.seen)
        cache = policy.fold(cache, new, seen if policy.probe is not None else None)
    return cache
