"""Attention of a few new tokens over whole caches on a GPU. `kernels.reference` is its specification."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from kernels.attention import check
from kernels.triton.attention import LOG2_E, length_tensor
from kernels.triton.launch import aligned, launch
from kernels.triton.programs.decode import decode_merge_kernel, decode_part_kernel
from kernels.triton.support import refuse, unsupported
from kernels.triton.tiles import DECODE, MERGE, Family, block_of, family, precision

MOST_QUERIES = 8
PART = 256  # entries that one program reads; the same always, so that a result depends on no other sequence


def decode_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    log_weights: Tensor,
    *,
    scale: float | None = None,
    lengths: Tensor | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of 1 to 8 queries of each sequence over its weighted entries, the last of which are theirs.

    q            [B, Hq, S, d]     float16, bfloat16 or float32; d one of support.HEAD_SIZES
    keys         [B, Hkv, C, d]
    values       [B, Hkv, C, d]
    log_weights  [B, Hkv, C]       -inf hides an entry
    scale        1/sqrt(d) by default
    lengths      [B] int32         entries of each sequence; what follows them is never read. Default: all C

    With L entries, query i sees entries 0..L-S+i. Returns out [B, Hq, S, d] in q's dtype and lse [B, Hq, S]
    float32; zeros and -inf where a query sees nothing. A sequence's result is the same bits in any batch.
    ValueError for arguments that do not fit together, or that the programs do not take.
    """
    check(q, keys, values, log_weights)
    entries = keys.shape[2]
    if lengths is None:
        most = min(MOST_QUERIES, entries)
        if not 1 <= q.shape[2] <= most:
            raise ValueError(f"q has {q.shape[2]} queries; allowed are 1 to {most}")
        return _decode(q, keys, values, log_weights, None, None, scale)
    lengths = length_tensor("lengths", lengths, q, entries)
    return _decode(q, keys, values, log_weights, torch.zeros_like(lengths), lengths, scale)


def decode_attention_packed(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    log_weights: Tensor,
    offsets: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """`decode_attention` where the entries of all sequences lie one after the other, without pads.

    q            [B, Hq, S, d]
    keys         [Hkv, N, d]
    values       [Hkv, N, d]
    log_weights  [Hkv, N]
    offsets      [B + 1] int32    sequence b has entries offsets[b]..offsets[b + 1]; ascending, at most N

    Returns the same. ValueError likewise.
    """
    for name, tensor, dims in (("keys", keys, 3), ("values", values, 3), ("log_weights", log_weights, 2)):
        if tensor.dim() != dims:
            raise ValueError(f"{name} has {tensor.dim()} dimensions; allowed are {dims}")
    if offsets.shape != (q.shape[0] + 1,) or offsets.dtype != torch.int32 or offsets.device != q.device:
        raise ValueError(
            f"offsets is {offsets.dtype} of shape {tuple(offsets.shape)} on {offsets.device};"
            f" allowed is torch.int32 of shape ({q.shape[0] + 1},) on {q.device}"
        )
    spread = (tensor.unsqueeze(0).expand(q.shape[0], *tensor.shape) for tensor in (keys, values, log_weights))
    keys, values, log_weights = spread
    check(q, keys, values, log_weights)
    return _decode(q, keys, values, log_weights, offsets[:-1].contiguous(), offsets.diff(), scale)


def _decode(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    log_weights: Tensor,
    starts: Tensor | None,
    lengths: Tensor | None,
    scale: float | None,
) -> tuple[Tensor, Tensor]:
    """`decode_attention` of checked arguments, where sequence b begins at entry starts[b]."""
    refuse(unsupported(keys, values, q, scale=scale))
    batch, heads, queries, d = q.shape
    if not 1 <= queries <= MOST_QUERIES:
        raise ValueError(f"q has {queries} queries; allowed are 1 to {MOST_QUERIES}")
    kv_heads, entries = keys.shape[1:3]
    rows, parts = queries * (heads // kv_heads), -(-entries // PART)
    out = q.new_empty(batch, queries, heads, d)
    lse = torch.empty(batch, queries, heads, dtype=torch.float32, device=q.device)
    part_lse = torch.empty(batch, kv_heads, parts, rows, dtype=torch.float32, device=q.device)
    part_out = torch.empty(batch, kv_heads, parts, rows, d, dtype=torch.float32, device=q.device)
    ragged = lengths is not None
    starts, lengths = (q.new_empty(0, dtype=torch.int32) if x is None else x for x in (starts, lengths))
    log_weights = log_weights.to(torch.float32)
    if log_weights.stride(-1) != 1:
        log_weights = log_weights.contiguous()
    constants, options = plan_part(q.dtype, d, family(q.device))
    (q, q_strides), (keys, k_strides), (values, v_strides) = (aligned(x) for x in (q, keys, values))
    shape = (kv_heads, heads // kv_heads, queries, entries)
    if batch and parts:
        arguments = (
            q,
            keys,
            values,
            log_weights,
            part_out,
            part_lse,
            starts,
            lengths,
            *q_strides,
            *k_strides,
            *v_strides,
            *log_weights.stride()[:2],
            (d**-0.5 if scale is None else scale) * LOG2_E,
            *shape,
            int(ragged),
            0,
        )
        grid = (parts, batch * kv_heads, -(-rows // constants["BLOCK_M"]))
        launch(decode_part_kernel, grid, q.device, arguments, constants, options)
    if batch:
        merged = (part_out, part_lse, out, lse, lengths, *shape, parts, int(ragged))
        launch(decode_merge_kernel, (rows, batch * kv_heads), q.device, merged, *plan_merge(d))
    return out.transpose(1, 2), lse.transpose(1, 2)


def plan_part(dtype: torch.dtype, head_size: int, device: Family) -> tuple[dict[str, Any], dict[str, int]]:
    """(constants, launch options) of the program over parts, for a dtype, head size and family of devices."""
    tile = DECODE[device, dtype == torch.float32, block_of(head_size)]
    constants = {
        "HEAD_DIM": head_size,
        "BLOCK_D": block_of(head_size),
        "BLOCK_M": tile.rows,
        "BLOCK_N": tile.columns,
        "PART": PART,
        "PRECISION": precision(dtype),
    }
    return constants, {"num_warps": tile.warps, "num_stages": tile.stages}


def plan_merge(head_size: int) -> tuple[dict[str, Any], dict[str, int]]:
    """(constants, launch options) of the program that merges parts."""
    constants = {
        "HEAD_DIM": head_size,
        "BLOCK_D": block_of(head_size),
        "BLOCK_P": MERGE.columns,
        "PART": PART,
    }
    return constants, {"num_warps": MERGE.warps, "num_stages": MERGE.stages}
