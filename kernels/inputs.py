"""What callers may not hand to the public functions of this package: each refusal names the argument."""

from __future__ import annotations

import torch
from torch import Tensor


def check_finite(name: str, tensor: Tensor, *, dtype: torch.dtype | None = None) -> None:
    """ValueError unless `tensor` is of floating point, of `dtype` where given, and all its numbers finite."""
    if not tensor.dtype.is_floating_point or (dtype is not None and tensor.dtype != dtype):
        raise ValueError(f"{name} has dtype {tensor.dtype}; allowed is {dtype or 'a floating one'}")
    finite = tensor.isfinite()
    if not finite.all():
        place = tuple((~finite).nonzero()[0].tolist())
        raise ValueError(f"{name} is {tensor[place].item()} at {place}; allowed are finite numbers")


def check_entries(entries: int, least: int) -> None:
    """ValueError unless `entries` is an even number and at least `least`."""
    if entries < least or entries % 2:
        raise ValueError(f"entries is {entries}; allowed is an even number, {least} or more")


def check_seed(seed: int) -> None:
    """ValueError unless the counter-based random numbers take it as a seed."""
    if not 0 <= seed < 1 << 63:
        raise ValueError(f"seed is {seed}; allowed is 0 to 2^63 - 1")


def check_weights(weights: Tensor) -> None:
    """ValueError unless all are finite and greater than zero."""
    check_finite("weights", weights)
    if weights.numel() and float(weights.min()) <= 0.0:
        raise ValueError(f"weights has {float(weights.min())}; allowed is more than 0")
