"""The gathering program against WeightedKV.gather."""

from __future__ import annotations

import pytest
import torch

from kernels.triton.gather import gather
from kernels.triton.support import HEAD_SIZES
from kernels.weighted_kv import WeightedKV
from tests.kernels.triton.interpreted.inputs import normal


def _entries(rows: tuple[int, ...], entries: int, d: int, dtype: torch.dtype = torch.float32) -> WeightedKV:
    exact = WeightedKV.exact(
        normal(*rows, entries, d, seed=1, dtype=dtype), normal(*rows, entries, d, seed=2, dtype=dtype)
    )
    weights = torch.rand(*rows, entries, generator=torch.Generator().manual_seed(3)) + 1.0
    return WeightedKV(exact.keys, exact.values, weights, exact.tokens)


def _expected(entries: WeightedKV, index: torch.Tensor, factor: float) -> WeightedKV:
    """By torch, without a word to the dispatch."""
    keys, values, weights, tokens = (
        tensor.gather(-1, index)
        if tensor.dim() == index.dim()
        else tensor.gather(-2, index.unsqueeze(-1).expand(*index.shape, tensor.shape[-1]))
        for tensor in entries.tensors()
    )
    return WeightedKV(keys, values, weights * factor, tokens)


def _same(got: WeightedKV, expected: WeightedKV) -> bool:
    return all(torch.equal(a, b) for a, b in zip(got.tensors(), expected.tensors(), strict=True))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_every_head_size_and_dtype(d: int, dtype: torch.dtype) -> None:
    entries = _entries((2, 3), 50, d, dtype)
    index = torch.randint(0, 50, (2, 3, 37), generator=torch.Generator().manual_seed(d))
    assert _same(gather(entries, index, factor=2.0), _expected(entries, index, 2.0))


def test_a_slice_of_larger_tensors() -> None:
    entries = _entries((2, 3), 90, 64).slice(7, 64)
    index = torch.arange(56, -1, -1).expand(2, 3, 57)
    assert _same(gather(entries, index), _expected(entries, index, 1.0))


def test_nothing_to_pick() -> None:
    assert len(gather(_entries((2, 3), 9, 64), torch.zeros(2, 3, 0, dtype=torch.int64))) == 0


def test_what_it_does_not_take_is_named() -> None:
    with pytest.raises(ValueError, match=r"index is torch.int32 of shape \(2, 4\)"):
        gather(_entries((2,), 9, 64), torch.zeros(2, 4, dtype=torch.int32))
    with pytest.raises(ValueError, match="keys has head size 20"):
        gather(_entries((2,), 9, 20), torch.zeros(2, 4, dtype=torch.int64))
