"""Merging partial attention by log-sum-exp is exact, however the entries are split."""

from __future__ import annotations

import itertools

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernels.merge import merge
from kernels.reference import weighted_attention
from tests.kernels.numeric import error_ratio


@settings(max_examples=40, deadline=None, derandomize=True)
@given(
    cuts=st.lists(st.integers(0, 50), max_size=5),
    seed=st.integers(0, 2**31),
    size=st.sampled_from([0.1, 1, 40]),
)
def test_any_split_merges_to_the_whole(cuts: list[int], seed: int, size: float) -> None:
    random = torch.Generator().manual_seed(seed)
    q, keys, values = (torch.randn(1, 2, 50, 8, generator=random, dtype=torch.float64) for _ in range(3))
    log_w = torch.randn(1, 2, 50, generator=random, dtype=torch.float64) * 5
    edges = [0, *sorted(cuts), 50]
    out, lse = torch.zeros_like(q), torch.full((1, 2, 50), -torch.inf, dtype=torch.float64)
    for start, stop in itertools.pairwise(edges):
        part = weighted_attention(
            q * size, keys[:, :, start:stop], values[:, :, start:stop], log_w[:, :, start:stop]
        )
        out, lse = merge(out, lse, *part)
    expected_out, expected_lse = weighted_attention(q * size, keys, values, log_w)
    assert error_ratio(out, expected_out) < 1e-12
    assert error_ratio(lse, expected_lse) < 1e-12


def test_two_empty_sets_merge_to_an_empty_one() -> None:
    out, lse = merge(*(torch.zeros(3, 4), torch.full((3,), -torch.inf)) * 2)
    assert torch.equal(out, torch.zeros(3, 4))
    assert torch.equal(lse, torch.full((3,), -torch.inf))


def test_half_precision_outputs_are_merged_in_float32() -> None:
    random = torch.Generator().manual_seed(0)
    a, b = (torch.randn(64, 32, generator=random).bfloat16() for _ in range(2))
    lse = torch.randn(2, 64, generator=random)
    out, _ = merge(a, lse[0], b, lse[1])
    expected, _ = merge(a.double(), lse[0].double(), b.double(), lse[1].double())
    assert out.dtype == torch.bfloat16
    assert error_ratio(out, expected) < torch.finfo(torch.bfloat16).eps / 2
