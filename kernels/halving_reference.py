"""Kernel halving spelled out, one bucket after the other: the specification of `halving`."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def kernel_halving_reference(
    keys: Tensor,
    values: Tensor,
    randoms: Tensor,
    *,
    scale: float | None = None,
    rule: str = "greedy",
    delta: float = 0.5,
    multiplier: float = 1.0,
    centred: bool = True,
) -> Tensor:
    """`halving.kernel_halving`, same arguments and result, by each bucket's whole kernel matrix, float64."""
    check_halving(keys, values, randoms, rule=rule, delta=delta, multiplier=multiplier)
    points, d = keys.shape[-2:]
    factor = d**-0.5 if scale is None else scale
    kept = [
        _bucket(k, v, u, factor, rule, delta, multiplier, centred)
        for k, v, u in zip(
            keys.reshape(-1, points, d).double(),
            values.reshape(-1, points, values.shape[-1]).double(),
            randoms.reshape(-1, points // 2 + 1).tolist(),
            strict=True,
        )
    ]
    return torch.tensor(kept, device=keys.device).view(*keys.shape[:-2], points // 2)


def _bucket(
    keys: Tensor,
    values: Tensor,
    randoms: list[float],
    scale: float,
    rule: str,
    delta: float,
    multiplier: float,
    centred: bool,
) -> list[int]:
    """Kept points of one bucket, keys [S, d] and values [S, d_v]."""
    points = keys.shape[0]
    if centred:
        keys = keys - keys.mean(0)
    shift = scale * float(keys.square().sum(-1).max())
    kernel = (scale * keys @ keys.T - shift).exp() * (values @ values.T + values.abs().max() ** 2)
    psi = torch.zeros(points, dtype=torch.float64, device=keys.device)  # psi evaluated at every point
    absolute = torch.zeros_like(psi)
    norm_max = 0.0
    kept = []
    for i in range(points // 2):
        x, y = 2 * i, 2 * i + 1
        alpha = float(psi[x] - psi[y])
        norm = math.sqrt(max(0.0, float(kernel[x, x] + kernel[y, y] - 2 * kernel[x, y])))
        norm_max = max(norm_max, norm)
        if abs(alpha) <= 1e-11 * float(absolute[x] + absolute[y]):
            alpha = 0.0
        if rule == "greedy":
            sign = -1 if alpha > 0 else 1
        else:
            a = multiplier * (0.5 + math.log(2 * points / delta)) * norm * norm_max
            share = 0.5 if a == 0.0 else min(1.0, max(0.0, (1 + alpha / a) / 2))
            sign = -1 if randoms[1 + i] < share else 1
        psi += sign * (kernel[x] - kernel[y])
        absolute += kernel[x].abs() + kernel[y].abs()
        kept.append(x if sign == 1 else y)
    return [point ^ 1 for point in kept] if randoms[0] < 0.5 else kept


def check_halving(
    keys: Tensor,
    values: Tensor,
    randoms: Tensor,
    *,
    rule: str = "greedy",
    delta: float = 0.5,
    multiplier: float = 1.0,
) -> None:
    """ValueError where the arguments of a halving function do not fit together."""
    points = keys.shape[-2]
    if points < 2 or points % 2:
        raise ValueError(f"keys has buckets of {points} points; allowed is an even number, 2 or more")
    if values.shape[:-1] != keys.shape[:-1]:
        raise ValueError(
            f"values has shape {tuple(values.shape)}; keys allow {tuple(keys.shape[:-1])} in front"
        )
    if randoms.shape != (*keys.shape[:-2], points // 2 + 1):
        raise ValueError(
            f"randoms has shape {tuple(randoms.shape)}; keys allow {(*keys.shape[:-2], points // 2 + 1)}"
        )
    if rule not in ("greedy", "threshold"):
        raise ValueError(f"rule is {rule!r}; allowed are greedy, threshold")
    if not 0.0 < delta < 1.0:
        raise ValueError(f"delta is {delta}; allowed is more than 0 and less than 1")
    if not multiplier > 0.0:
        raise ValueError(f"multiplier is {multiplier}; allowed is more than 0")
