"""Kernel halving against its specification, and what it promises."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from kernels.halving import Halving, kernel_halving, uniform_halving
from kernels.halving_reference import kernel_halving_reference


def _bucket(points: int, rows: tuple[int, ...] = (2, 3), d: int = 12, seed: int = 0) -> tuple[Tensor, ...]:
    random = torch.Generator().manual_seed(seed + points)
    return (
        torch.randn(*rows, points, d, generator=random) * 1.5,
        torch.randn(*rows, points, d - 2, generator=random),
        torch.rand(*rows, points // 2 + 1, generator=random, dtype=torch.float64),
    )


@pytest.mark.parametrize("tile", [1, 16, 64])
@pytest.mark.parametrize("centred", [True, False], ids=["centred", "as-is"])
@pytest.mark.parametrize("rule", ["greedy", "threshold"])
@pytest.mark.parametrize("points", [2, 6, 64, 146])
def test_decisions_agree_with_the_specification(points: int, rule: str, centred: bool, tile: int) -> None:
    bucket = _bucket(points)
    kept = kernel_halving(*bucket, rule=rule, centred=centred, tile=tile, multiplier=0.1)
    assert torch.equal(kept, kernel_halving_reference(*bucket, rule=rule, centred=centred, multiplier=0.1))


@pytest.mark.parametrize("tile", [1, 3, 64])
def test_exact_ties_are_not_decided_by_rounding(tile: int) -> None:
    """Points drawn from few: signed sums cancel exactly, and each way of summing leaves other last bits."""
    keys, values, randoms = _bucket(120, rows=(40,))
    pick = torch.randint(0, 5, (40, 120, 1), generator=torch.Generator().manual_seed(0))
    keys, values = (x[:, :5].gather(1, pick.expand(-1, -1, x.shape[-1])) for x in (keys, values))
    kept = kernel_halving(keys, values, randoms, tile=tile)
    assert torch.equal(kept, kernel_halving_reference(keys, values, randoms))


def test_scale_and_large_logits() -> None:
    """Logits in the hundreds, whose exponentials overflow without the common shift."""
    keys, values, randoms = _bucket(40)
    kept = kernel_halving(keys * 30, values, randoms, scale=0.5, centred=False)
    assert torch.equal(kept, kernel_halving_reference(keys * 30, values, randoms, scale=0.5, centred=False))
    assert not torch.equal(kept, kernel_halving(keys, values, randoms, scale=0.5, centred=False))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=str)
def test_half_precision_points(dtype: torch.dtype) -> None:
    keys, values, randoms = _bucket(64)
    keys, values = keys.to(dtype), values.to(dtype)
    assert torch.equal(kernel_halving(keys, values, randoms), kernel_halving_reference(keys, values, randoms))


@pytest.mark.parametrize("halve", [kernel_halving, uniform_halving])
def test_one_of_each_pair_and_unbiased(halve: Halving) -> None:
    """Over many seeds every point stays half of the time, and of each pair exactly one does."""
    keys, values, _ = _bucket(16, rows=())
    trials = 4000
    randoms = torch.rand(trials, 9, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    kept = halve(keys.expand(trials, -1, -1), values.expand(trials, -1, -1), randoms)
    assert torch.equal(kept // 2, torch.arange(8).expand(trials, 8))
    shares = torch.nn.functional.one_hot(kept, 16).sum(1).double().mean(0)
    assert float((shares - 0.5).abs().max()) < 4 * 0.5 / trials**0.5


@settings(max_examples=20, deadline=None, derandomize=True)
@given(points=st.integers(1, 20), rows=st.integers(1, 40), seed=st.integers(0, 1000))
def test_a_bucket_does_not_see_its_neighbours(points: int, rows: int, seed: int) -> None:
    """Also where equal points make exact ties, which rounding must not decide."""
    keys, values, randoms = _bucket(2 * points, rows=(rows,), seed=seed)
    pick = (
        torch.randint(0, 2 * points, (rows, 2 * points), generator=torch.Generator().manual_seed(seed)) // 3
    )
    keys, values = (x.gather(1, pick[..., None].expand_as(x)) for x in (keys, values))
    together = kernel_halving(keys, values, randoms)
    for row in range(rows):
        assert torch.equal(together[row], kernel_halving(keys[row], values[row], randoms[row]))


def test_greedy_beats_a_fair_coin_on_the_kernel_sum_it_minimises() -> None:
    keys, values, randoms = _bucket(128, rows=(20,), d=4)
    keys = keys * 0.2

    def discrepancy(kept: Tensor) -> float:
        weights = torch.full((20, 128), 0.5, dtype=torch.float64).scatter_add(
            1, kept, torch.full(kept.shape, -1.0, dtype=torch.float64)
        )
        k, v = keys.double(), values.double()
        largest = v.abs().amax((1, 2), keepdim=True) ** 2
        kernel = (k @ k.mT * 0.5).exp() * (v @ v.mT + largest)
        return float((weights[:, None] @ kernel @ weights[..., None]).clamp_min(0).sqrt().mean())

    greedy = discrepancy(kernel_halving(keys, values, randoms, centred=False))
    assert greedy < 0.4 * discrepancy(uniform_halving(keys, values, randoms))


def test_bad_arguments_are_named() -> None:
    keys, values, randoms = _bucket(8)
    for message, arguments in [
        ("buckets of 7 points", (keys[..., :7, :], values[..., :7, :], randoms)),
        ("values has shape", (keys, values[..., :6, :], randoms)),
        ("randoms has shape", (keys, values, randoms[..., :4])),
    ]:
        with pytest.raises(ValueError, match=message):
            kernel_halving(*arguments)
    with pytest.raises(ValueError, match="rule is 'best'; allowed are greedy, threshold"):
        kernel_halving(keys, values, randoms, rule="best")
    with pytest.raises(ValueError, match="delta is 1"):
        kernel_halving(keys, values, randoms, delta=1.5)
    with pytest.raises(ValueError, match="tile is 0"):
        kernel_halving(keys, values, randoms, tile=0)
