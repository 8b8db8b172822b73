"""Kernel halving on a GPU, one program per bucket. `kernels.halving_reference` is its specification."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.halving_reference import check_halving
from kernels.triton.attention import LOG2_E
from kernels.triton.launch import launch
from kernels.triton.programs.halving import halving_kernel
from kernels.triton.support import refuse, unsupported
from kernels.triton.tiles import HALVING, Family, block_of, family, precision

# A signed sum below this share of the sum of its absolute terms is a tie: float32 rounding would decide it.
_TIE = 5e-7


def kernel_halving(
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
    """Indices [*rows, P] int64 of the kept points of each bucket; everything as in `halving.kernel_halving`.

    keys     [*rows, 2P, d]    float16, bfloat16 or float32; d one of support.HEAD_SIZES
    values   [*rows, 2P, d]
    randoms  [*rows, P + 1]    float64

    Sums are float32, so decisions equal the float64 reference's but where a pair's signed sum is within about
    1e-6 of nought, relative to its absolute terms. A bucket's result is the same bits in any batch.
    ValueError for arguments that do not fit together, or that the program does not take.
    """
    check_halving(keys, values, randoms, rule=rule, delta=delta, multiplier=multiplier)
    kept, _, _ = _halve(keys, values, randoms, scale, rule, delta, multiplier, centred, fused=False)
    return kept


def halve(
    keys: Tensor,
    values: Tensor,
    randoms: Tensor,
    *,
    scale: float | None = None,
    rule: str = "greedy",
    delta: float = 0.5,
    multiplier: float = 1.0,
    centred: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """`kernel_halving` and the survivors' keys and values [*rows, P, d], gathered by the same program."""
    check_halving(keys, values, randoms, rule=rule, delta=delta, multiplier=multiplier)
    return _halve(keys, values, randoms, scale, rule, delta, multiplier, centred, fused=True)


def _halve(
    keys: Tensor,
    values: Tensor,
    randoms: Tensor,
    scale: float | None,
    rule: str,
    delta: float,
    multiplier: float,
    centred: bool,
    *,
    fused: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    refuse(unsupported(keys, values, scale=scale))
    rows, (points, d) = keys.shape[:-2], keys.shape[-2:]
    factor = d**-0.5 if scale is None else scale
    bound = multiplier * (0.5 + math.log(2 * points / delta)) if rule == "threshold" else 0.0
    buckets = rows.numel()
    kept = torch.empty(*rows, points // 2, dtype=torch.int64, device=keys.device)
    kept_keys, kept_values = (keys.new_empty(*rows, points // 2 if fused else 0, d) for _ in range(2))
    if buckets:
        constants, options = plan(keys.dtype, d, family(keys.device))
        arguments = (
            _flat(keys),
            _flat(values),
            randoms.to(torch.float64).contiguous(),
            kept,
            kept_keys,
            kept_values,
            torch.empty(buckets, 6, points, dtype=torch.float32, device=keys.device),
            factor * LOG2_E,
            float(centred),
            bound,
            _TIE,
            points,
            d,
            int(fused),
        )
        launch(halving_kernel, (buckets,), keys.device, arguments, constants, options)
    return kept, kept_keys, kept_values


def plan(dtype: torch.dtype, head_size: int, device: Family) -> tuple[dict[str, Any], dict[str, int]]:
    """(constants, launch options) of the program for a dtype, head size and family of devices."""
    block = block_of(head_size)
    tile, pairs, chunk = HALVING[device, dtype == torch.float32, block]
    constants = {
        "HEAD_DIM": head_size,
        "BLOCK_D": block,
        "CHUNK": min(chunk, block),
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "PAIRS": pairs,
        "PRECISION": precision(dtype),
    }
    # Without a word about registers ptxas aims at more programs side by side, and spills for their sake.
    return constants, {"num_warps": tile.warps, "num_stages": tile.stages, "maxnreg": 255}


def _flat(points: Tensor) -> Tensor:
    """[*rows, S, d] contiguous, at a multiple of 16 bytes; a copy only where it is not."""
    points = points.contiguous()
    return points.clone() if points.data_ptr() % 16 else points
