"""Weighted causal attention of a segment on a GPU. `kernels.reference` is its specification."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from kernels.attention import PREFIX, check
from kernels.triton.launch import aligned, launch
from kernels.triton.programs.attention import attention_kernel
from kernels.triton.support import refuse, unsupported
from kernels.triton.tiles import ATTENTION, Family, block_of, family, precision

LOG2_E = math.log2(math.e)


def segment_attention(
    q: Tensor,
    prefix_keys: Tensor,
    prefix_values: Tensor,
    prefix_log_weights: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float | None = None,
    prefix_lengths: Tensor | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of a segment's queries to C weighted entries before it and causally to the segment's keys.

    q                   [B, Hq, S, d]   float16, bfloat16 or float32; d one of support.HEAD_SIZES
    prefix_keys         [B, Hkv, C, d]  C may be 0
    prefix_values       [B, Hkv, C, d]
    prefix_log_weights  [B, Hkv, C]     -inf hides an entry
    keys                [B, Hkv, S', d] S' >= S: the queries belong to the last S of the S' keys
    values              [B, Hkv, S', d]
    scale               1/sqrt(d) by default
    prefix_lengths      [B] int32       entries and keys of each sequence that count; what follows is never
    lengths             [B] int32       read, and a query there gets zeros and lse -inf. Default: all

    Returns out [B, Hq, S, d] in q's dtype, a view of memory laid out [B, S, Hq, d], and lse [B, Hq, S]
    float32. float32 is multiplied in tf32 alone only where torch.set_float32_matmul_precision allows it.
    Keeps no graph for gradients. ValueError for arguments that do not fit together, or that the program does
    not take.
    """
    check(q, keys, values)
    check(q, prefix_keys, prefix_values, prefix_log_weights, names=PREFIX)
    batch, heads, queries, d = q.shape
    kv_heads, entries, own = keys.shape[1], prefix_keys.shape[2], keys.shape[2]
    if prefix_keys.shape[1] != kv_heads:
        raise ValueError(f"prefix_keys has {prefix_keys.shape[1]} KV heads; keys allows its own, {kv_heads}")
    if own < queries:
        raise ValueError(f"keys has {own} entries; q has {queries} queries and each needs its own key")
    refuse(unsupported(keys, values, q, prefix_keys, prefix_values, scale=scale))
    ragged, prefix_lengths, lengths = _lengths(q, prefix_lengths, entries, lengths, own)
    out = q.new_empty(batch, queries, heads, d)
    lse = torch.empty(batch, queries, heads, dtype=torch.float32, device=q.device)
    rows = queries * (heads // kv_heads)
    if batch and rows:
        tf32 = torch.get_float32_matmul_precision() != "highest"
        constants, options = plan(q.dtype, d, family(q.device), tf32=tf32)
        tensors, strides = zip(
            *(aligned(tensor) for tensor in (q, prefix_keys, prefix_values, keys, values)), strict=True
        )
        arguments = (
            *tensors[:3],
            prefix_log_weights.to(torch.float32).contiguous(),
            *tensors[3:],
            out,
            lse,
            prefix_lengths,
            lengths,
            *(stride for of_tensor in strides for stride in of_tensor),
            (d**-0.5 if scale is None else scale) * LOG2_E,
            kv_heads,
            heads // kv_heads,
            queries,
            entries,
            own,
            int(ragged),
            0,
        )
        grid = (-(-rows // constants["BLOCK_M"]), batch * kv_heads)
        launch(attention_kernel, grid, q.device, arguments, constants, options)
    return out.transpose(1, 2), lse.transpose(1, 2)


def plan(
    dtype: torch.dtype, head_size: int, device: Family, *, tf32: bool = False
) -> tuple[dict[str, Any], dict[str, int]]:
    """(constants, launch options) of the program for a dtype, head size and family of devices."""
    tile = ATTENTION[device, dtype == torch.float32, block_of(head_size)]
    constants = {
        "HEAD_DIM": head_size,
        "BLOCK_D": block_of(head_size),
        "BLOCK_M": tile.rows,
        "BLOCK_N": tile.columns,
        "PRECISION": precision(dtype, tf32=tf32),
    }
    return constants, {"num_warps": tile.warps, "num_stages": tile.stages}


def _lengths(
    q: Tensor, prefix_lengths: Tensor | None, entries: int, lengths: Tensor | None, own: int
) -> tuple[bool, Tensor, Tensor]:
    """(whether they differ between sequences, both as [B] int32); some tensor where they do not."""
    if prefix_lengths is None and lengths is None:
        return False, q.new_empty(0, dtype=torch.int32), q.new_empty(0, dtype=torch.int32)
    return (
        True,
        length_tensor("prefix_lengths", prefix_lengths, q, entries),
        length_tensor("lengths", lengths, q, own),
    )


def length_tensor(name: str, given: Tensor | None, q: Tensor, most: int) -> Tensor:
    """Lengths [B] int32 on q's device, `most` where none are given; ValueError unless they are that."""
    batch = q.shape[0]
    if given is None:
        return torch.full((batch,), most, dtype=torch.int32, device=q.device)
    if given.shape != (batch,) or given.dtype != torch.int32 or given.device != q.device:
        raise ValueError(
            f"{name} is {given.dtype} of shape {tuple(given.shape)} on {given.device};"
            f" allowed is torch.int32 of shape ({batch},) on {q.device}"
        )
    return given.clamp(0, most).contiguous()
