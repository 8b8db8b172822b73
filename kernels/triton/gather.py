"""Gathering entries on a GPU, all four tensors in one launch. `WeightedKV.gather` is its specification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.triton.launch import aligned, launch
from kernels.triton.programs.gather import gather_kernel
from kernels.triton.support import refuse, unsupported
from kernels.triton.tiles import GATHER, block_of
from kernels.weighted_kv import WeightedKV

_BITS = {2: torch.int16, 4: torch.int32}  # one program for all numbers of a size


def gather(entries: WeightedKV, index: Tensor, *, factor: float = 1.0) -> WeightedKV:
    """Entries `index` [*rows, P] (int64) of every row in that order, their weights multiplied by `factor`.

    Keys are float16, bfloat16 or float32, values of the same head size, one of support.HEAD_SIZES. Indices
    are not checked on the device: each lies in 0..C-1. ValueError for arguments that do not fit together, or
    that the program does not take.
    """
    rows = entries.rows
    if index.shape[:-1] != rows or index.dtype != torch.int64 or index.device != entries.keys.device:
        raise ValueError(
            f"index is {index.dtype} of shape {tuple(index.shape)} on {index.device}; allowed is torch.int64"
            f" with {tuple(rows)} in front on {entries.keys.device}"
        )
    refuse(unsupported(entries.keys, entries.values))
    picks, d = index.shape[-1], entries.keys.shape[-1]
    count = rows.numel()
    keys, values = (entries.keys.new_empty(*rows, picks, d) for _ in range(2))
    weights, tokens = (x.new_empty(*rows, picks) for x in (entries.weights, entries.tokens))
    if count and picks:
        bits = _BITS[keys.element_size()]
        constants, options = plan(d)
        flat = [x.reshape(count, len(entries), *x.shape[len(rows) + 1 :]) for x in entries.tensors()]
        (old_keys, k_strides), (old_values, v_strides) = (aligned(x) for x in flat[:2])
        old_weights, old_tokens = (x if x.stride(1) == 1 else x.contiguous() for x in flat[2:])
        arguments = (
            old_keys.view(bits),
            old_values.view(bits),
            old_weights,
            old_tokens,
            index.contiguous(),
            keys.view(bits),
            values.view(bits),
            weights,
            tokens,
            *k_strides,
            *v_strides,
            old_weights.stride(0),
            old_tokens.stride(0),
            picks,
            factor,
        )
        grid = (count, -(-picks // constants["BLOCK_P"]))
        launch(gather_kernel, grid, keys.device, arguments, constants, options)
    return WeightedKV(keys, values, weights, tokens)


def plan(head_size: int) -> tuple[dict[str, Any], dict[str, int]]:
    """(constants, launch options) of the program for a head size."""
    constants = {"HEAD_DIM": head_size, "BLOCK_D": block_of(head_size), "BLOCK_P": GATHER.rows}
    return constants, {"num_warps": GATHER.warps, "num_stages": GATHER.stages}
