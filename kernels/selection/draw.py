"""Sampling without replacement, with given chances, from counters alone.

Source: systematic sampling with unequal probabilities (Madow, Annals of Mathematical Statistics 20, 1949).
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels.seeds import derive, uniforms


def inclusion(mass: Tensor, base: Tensor, count: int, floor: float) -> Tensor:
    """Chances pi_i = min(1, tau p_i) with sum `count`, [*rows, T] float64, all greater than 0.

    p = (1 - floor) mass / sum(mass) + floor base / sum(base); mass and base [*rows, T] are not negative,
    base has no zeros, and T >= count. A row whose mass is all 0 follows its base.
    """
    mass, base = mass.double(), base.double()
    uniform = base / base.sum(-1, keepdim=True)
    total = mass.sum(-1, keepdim=True)
    share = torch.where(total > 0, mass / total.clamp_min(torch.finfo(torch.float64).tiny), uniform)
    p = (1 - floor) * share + floor * uniform
    # With the j largest at chance 1, tau is (count - j) / (sum of the others): the first j that fits.
    ordered = p.sort(dim=-1, descending=True).values
    others = ordered.flip(-1).cumsum(-1).flip(-1)
    left = count - torch.arange(p.shape[-1], device=p.device, dtype=torch.float64)
    tau = left / others
    first = (tau * ordered <= 1.0).to(torch.uint8).argmax(-1, keepdim=True)
    return (p * tau.gather(-1, first)).clamp_max(1.0)


def systematic(chances: Tensor, count: int, seed: int, counter: int, *, shared: bool = False) -> Tensor:
    """Places [*rows, count] int64, ascending, of a draw where entry i has chance pi_i (their sum is `count`).

    Entry i is drawn when [pi_1 + .. + pi_(i-1), pi_1 + .. + pi_i) holds u plus a whole number, with one u of
    (seed, counter, row) for each row, or of (seed, counter) for all of them where `shared`.
    """
    rows = chances.shape[:-1]
    number = torch.zeros(1, dtype=torch.int64) if shared else torch.arange(rows.numel())
    u = uniforms(derive(seed, counter), number.to(chances.device)).expand(rows.numel()).reshape(*rows, 1)
    sums = chances.cumsum(-1)
    # Rounding must neither add nor lose an entry at the end.
    sums = sums * (count / sums[..., -1:])
    marks = torch.arange(count, dtype=torch.float64, device=chances.device) + u.clamp(2.0**-30, 1 - 2.0**-30)
    places = torch.searchsorted(sums, marks, right=True)
    return places.clamp_max(chances.shape[-1] - 1)
