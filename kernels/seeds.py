"""Random numbers from counters: the same (seed, counters) give the same number, wherever and whenever.

No generator is carried along, so a stream that is read again from any stored state goes on as it would have.
The mixing function is the finalizer of SplitMix64 (Steele, Lea, Flood, "Fast Splittable Pseudorandom Number
Generators", 2014), applied once for each counter; integers alone, hence the same bits on every device.
"""

from __future__ import annotations

import torch
from torch import Tensor

_MASK = (1 << 64) - 1
_STEP = 0x9E3779B97F4A7C15
_FACTORS = ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB))


def derive(seed: int, *counters: int) -> int:
    """A 64-bit seed that belongs to `seed` and the counters, in their order."""
    value = seed & _MASK
    for counter in counters:
        value = (value + _STEP * (counter + 1)) & _MASK
        for shift, factor in _FACTORS:
            value = ((value ^ (value >> shift)) * factor) & _MASK
        value ^= value >> 31
    return value


def hashes(seed: int, *counters: Tensor) -> Tensor:
    """`derive` over int64 tensors that broadcast against each other; 64-bit values as int64."""
    value: Tensor | int = _signed(seed)
    for counter in counters:
        mixed = value + (counter + 1) * _signed(_STEP)
        for shift, factor in _FACTORS:
            mixed = (mixed ^ _shifted(mixed, shift)) * _signed(factor)
        value = mixed ^ _shifted(mixed, 31)
    if isinstance(value, int):
        raise ValueError("counters is empty; allowed is one tensor or more")
    return value


def uniforms(seed: int, *counters: Tensor) -> Tensor:
    """Numbers in [0, 1), float64, one for each element of the broadcast counters."""
    return _shifted(hashes(seed, *counters), 11).to(torch.float64) * 2.0**-53


def _signed(value: int) -> int:
    """The two's complement reading of the low 64 bits."""
    value &= _MASK
    return value - (1 << 64) if value >> 63 else value


def _shifted(value: Tensor, by: int) -> Tensor:
    """A logical shift to the right; torch's own keeps the sign."""
    return (value >> by) & ((1 << (64 - by)) - 1)
