"""The halving program decides as the float64 reference does."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from kernels.halving_reference import kernel_halving_reference
from kernels.triton.halving import halve, kernel_halving
from kernels.triton.support import HEAD_SIZES
from tests.kernels.triton.interpreted.inputs import normal


def _inputs(*shape: int, seed: int = 0, dtype: torch.dtype = torch.bfloat16) -> tuple[Tensor, Tensor, Tensor]:
    *rows, points, _ = shape
    randoms = torch.rand(
        *rows, points // 2 + 1, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    )
    return normal(*shape, seed=seed + 1, dtype=dtype), normal(*shape, seed=seed + 2, dtype=dtype), randoms


RULES = [
    pytest.param({"rule": "greedy"}, id="greedy"),
    pytest.param({"rule": "threshold"}, id="threshold"),
    pytest.param({"rule": "threshold", "multiplier": 0.02, "delta": 0.1}, id="tight-threshold"),
    pytest.param({"rule": "greedy", "centred": False, "scale": 0.5}, id="uncentred-scale"),
]


@pytest.mark.parametrize("options", RULES)
@pytest.mark.parametrize("points", [2, 30, 64, 150])
def test_decisions_equal_the_reference(points: int, options: dict[str, object]) -> None:
    """Buckets of one pair, of part of a tile, of a whole tile, of several and a part."""
    inputs = _inputs(1, points, 64, seed=points)
    assert torch.equal(kernel_halving(*inputs, **options), kernel_halving_reference(*inputs, **options))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("d", HEAD_SIZES)
def test_every_head_size_and_dtype(d: int, dtype: torch.dtype) -> None:
    inputs = _inputs(1, 40, d, seed=d, dtype=dtype)
    assert torch.equal(kernel_halving(*inputs), kernel_halving_reference(*inputs))


@pytest.mark.parametrize("size", [1e-3, 5.0], ids=["flat-kernel", "logits-beyond-float32-exponentials"])
def test_sizes_of_keys(size: float) -> None:
    """With keys of size 5, kernel values span exp(200): no one shift fits them all into float32."""
    keys, values, randoms = _inputs(1, 140, 64, seed=5, dtype=torch.float16)
    keys = keys * size + 3.0
    for rule in ("greedy", "threshold"):
        got = kernel_halving(keys, values, randoms, rule=rule)
        assert torch.equal(got, kernel_halving_reference(keys, values, randoms, rule=rule))


def test_equal_points_are_ties() -> None:
    """Tokens that repeat make sums of exactly nought, which no rounding may decide."""
    keys, values, randoms = _inputs(1, 8, 64, seed=3)
    again = torch.arange(96) * 5 % 8
    keys, values = keys[:, again], values[:, again]
    keys[:, 1::6], values[:, 1::6] = keys[:, ::6], values[:, ::6]  # pairs of equal points, too
    randoms = _inputs(1, 96, 64, seed=4)[2]
    assert torch.equal(kernel_halving(keys, values, randoms), kernel_halving_reference(keys, values, randoms))


def test_buckets_of_many_rows_and_the_survivors() -> None:
    keys, values, randoms = _inputs(2, 3, 34, 80, seed=9)
    kept, kept_keys, kept_values = halve(keys, values, randoms)
    assert torch.equal(kept, kernel_halving_reference(keys, values, randoms))
    assert bool((randoms[..., 0] < 0.5).any())  # both a bucket that keeps its complement
    assert bool((randoms[..., 0] >= 0.5).any())  # and one that does not
    index = kept.unsqueeze(-1).expand(*kept.shape, 80)
    assert torch.equal(kept_keys, keys.gather(-2, index))
    assert torch.equal(kept_values, values.gather(-2, index))


def test_a_bucket_inside_a_larger_tensor() -> None:
    keys, values, randoms = _inputs(2, 64, 64, seed=11)
    wide = torch.full((2, 70, 65), torch.nan, dtype=keys.dtype)
    wide[:, 3:67, 1:] = keys
    assert torch.equal(
        kernel_halving(wide[:, 3:67, 1:], values, randoms), kernel_halving_reference(keys, values, randoms)
    )


def test_what_it_does_not_take_is_named() -> None:
    keys, values, randoms = _inputs(1, 6, 64)
    with pytest.raises(ValueError, match="buckets of 5 points"):
        kernel_halving(keys[:, :5], values[:, :5], randoms)
    with pytest.raises(ValueError, match="rule is 'best'"):
        kernel_halving(keys, values, randoms, rule="best")
    with pytest.raises(ValueError, match="keys has head size 48"):
        kernel_halving(keys[..., :48], values[..., :48], randoms)
