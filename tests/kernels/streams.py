"""Streams of tokens for the tests of policies."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from kernels.selection import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV, concat


def stream(tokens: int, rows: tuple[int, ...] = (2, 2), d: int = 6, seed: int = 0) -> WeightedKV:
    """Random tokens of weight 1."""
    random = torch.Generator().manual_seed(seed)
    keys, values = (torch.randn(*rows, tokens, d, generator=random) for _ in range(2))
    return WeightedKV.exact(keys, values)


def folded(policy: SelectionPolicy, tokens: WeightedKV, lengths: Iterable[int]) -> CompressedKV:
    """The cache after segments of the given lengths, the last one cut where the tokens end."""
    cache = CompressedKV(tokens.slice(0, 0), 0)
    for length in lengths:
        cache = policy.fold(cache, tokens.slice(cache.seen, min(cache.seen + length, len(tokens))))
    return cache


def same(a: WeightedKV, b: WeightedKV) -> bool:
    """Equal bit for bit."""
    return all(torch.equal(x, y) for x, y in zip(a.tensors(), b.tensors(), strict=True))


__all__ = ["concat", "folded", "same", "stream"]
