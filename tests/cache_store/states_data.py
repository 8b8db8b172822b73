"""Small states for tests."""

from __future__ import annotations

import torch

from cache_store.naming import Plan, plan_name
from kernels.selection.policy import CompressedKV
from kernels.weighted_kv import WeightedKV

PLAN = Plan("f" * 64, "express", 64, 32, 7, "dense", {"sinks": "4"})
NAME = plan_name(PLAN)


def make_state(
    entries: int = 11,
    *,
    layers: int = 3,
    kv_heads: int = 2,
    head_dim: int = 5,
    value_dim: int = 7,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
) -> CompressedKV:
    """A state of random entries [layers, kv_heads, entries, ...] with weights other than 1."""
    generator = torch.Generator().manual_seed(seed)
    rows = (layers, kv_heads, entries)
    return CompressedKV(
        WeightedKV(
            torch.randn(*rows, head_dim, generator=generator).to(dtype),
            torch.randn(*rows, value_dim, generator=generator).to(dtype),
            torch.rand(*rows, generator=generator) + 0.5,
            torch.randint(0, 1000, rows, generator=generator, dtype=torch.int32),
        ),
        seen=1000,
    )


def assert_same(one: CompressedKV, other: CompressedKV) -> None:
    """Bit for bit the same state, each tensor contiguous."""
    assert one.seen == other.seen
    for first, second in zip(one.entries.tensors(), other.entries.tensors(), strict=True):
        assert first.dtype == second.dtype
        assert torch.equal(first, second)
        assert second.is_contiguous()
