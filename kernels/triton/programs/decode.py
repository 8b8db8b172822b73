"""The GPU programs behind `kernels.triton.decode`: entries in parts of equal length, then the parts merged.

Where a sequence is cut depends on its own length alone, so its result is the same in every batch.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.programs.products import product
from kernels.triton.programs.softmax import finish_rows, fold_tile


@triton.jit(
    do_not_specialize=["w_batch", "w_head", "kv_heads", "group", "queries", "entries", "ragged", "zero"],
    do_not_specialize_on_alignment=["log_weights", "part_lse", "starts", "lengths"],
)
def decode_part_kernel(
    q,  # [B, Hq, S, HEAD_DIM]
    keys,  # [B, Hkv, C, HEAD_DIM]
    values,
    log_weights,  # [B, Hkv, C] float32, its entries contiguous
    part_out,  # [B, Hkv, parts, S * group, HEAD_DIM] float32, contiguous
    part_lse,  # [B, Hkv, parts, S * group] float32, contiguous
    starts,  # [B] int32, read where ragged is not 0: first entry and number of entries of a sequence
    lengths,
    q_batch: tl.int64,  # strides in elements
    q_head: tl.int64,
    q_row,
    k_batch: tl.int64,
    k_head: tl.int64,
    k_row,
    v_batch: tl.int64,
    v_head: tl.int64,
    v_row,
    w_batch: tl.int64,
    w_head: tl.int64,
    scale_log2: tl.float32,  # softmax scale / log 2
    kv_heads,
    group,
    queries,
    entries,
    ragged,
    zero,  # always 0; see the end
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PART: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Attention of all rows of one KV head to PART entries; row r is query r // group, head r % group."""
    part = tl.program_id(0)
    batch = tl.program_id(1) // kv_heads
    kv_head = tl.program_id(1) % kv_heads
    first = 0
    known = entries
    if ragged != 0:
        first = tl.load(starts + batch)
        known = tl.load(lengths + batch)
    begin = part * PART
    if begin >= known:
        return
    end = tl.minimum(begin + PART, known)

    rows = queries * group
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)  # [M]
    query = row // group
    alive = row < rows
    position = known - queries + query  # [M] the row's own entry, the last that it sees
    dim = tl.arange(0, BLOCK_D)  # [D]
    in_head = (dim < HEAD_DIM)[None, :]
    q_tile = tl.load(
        q + batch * q_batch + ((kv_head * group + row % group) * q_head + query * q_row)[:, None] + dim,
        mask=alive[:, None] & in_head,
        other=0.0,
    )  # [M, D]

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    column = tl.arange(0, BLOCK_N)  # [N]
    at_first = (first + begin).to(tl.int64)
    k_base = keys + batch * k_batch + kv_head * k_head + at_first * k_row
    v_base = values + batch * v_batch + kv_head * v_head + at_first * v_row
    w_base = log_weights + batch * w_batch + kv_head * w_head + at_first
    k_tile_at = column[:, None] * k_row + dim[None, :]  # [N, D]
    v_tile_at = column[:, None] * v_row + dim[None, :]
    for start in range(begin, end, BLOCK_N):
        at = start + column
        inside = at < end
        shown = inside[:, None] & in_head
        k_tile = tl.load(k_base + k_tile_at, mask=shown, other=0.0)
        log_weight = tl.load(w_base + (start - begin) + column, mask=inside, other=float("-inf"))
        scores = product(q_tile, tl.trans(k_tile), PRECISION)  # [M, N]
        scores = scores * scale_log2 + (log_weight * 1.4426950408889634)[None, :]
        scores = tl.where(at[None, :] <= position[:, None], scores, float("-inf"))
        v_tile = tl.load(v_base + v_tile_at, mask=shown, other=0.0)
        acc, top, total = fold_tile(acc, top, total, scores, 1.0, v_tile, PRECISION)
        k_base += BLOCK_N * k_row
        v_base += BLOCK_N * v_row

    # As in `attention_kernel`: rows are computed anew, not kept through the loop.
    row = tl.program_id(2) * BLOCK_M + zero + tl.arange(0, BLOCK_M)
    alive = row < rows
    acc, log_sum = finish_rows(acc, top, total, alive)
    to = (tl.program_id(1).to(tl.int64) * tl.num_programs(0) + part) * rows + row  # [M]
    tl.store(part_out + to[:, None] * HEAD_DIM + dim[None, :], acc, mask=alive[:, None] & in_head)
    tl.store(part_lse + to, log_sum, mask=alive)


@triton.jit(
    do_not_specialize=["kv_heads", "group", "queries", "entries", "parts", "ragged"],
    do_not_specialize_on_alignment=["part_lse", "lse", "lengths"],
)
def decode_merge_kernel(
    part_out,  # [B, Hkv, parts, S * group, HEAD_DIM] float32
    part_lse,  # [B, Hkv, parts, S * group] float32
    out,  # [B, S, Hq, HEAD_DIM], contiguous
    lse,  # [B, S, Hq] float32, contiguous
    lengths,
    kv_heads,
    group,
    queries,
    entries,
    parts,
    ragged,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
    PART: tl.constexpr,
):
    """One row of one KV head: the parts' outputs, weighted by their shares of the softmax denominator."""
    row = tl.program_id(0)
    batch = tl.program_id(1) // kv_heads
    kv_head = tl.program_id(1) % kv_heads
    known = entries
    if ragged != 0:
        known = tl.load(lengths + batch)
    rows = queries * group
    dim = tl.arange(0, BLOCK_D)  # [D]
    in_head = dim < HEAD_DIM
    acc = tl.zeros([BLOCK_D], dtype=tl.float32)
    top = float("-inf")
    total = 0.0
    base = tl.program_id(1).to(tl.int64) * parts
    for start in range(0, tl.cdiv(known, PART), BLOCK_P):
        part = start + tl.arange(0, BLOCK_P)  # [P]
        written = part < tl.cdiv(known, PART)
        at = (base + part) * rows + row
        logs = tl.load(part_lse + at, mask=written, other=float("-inf")) * 1.4426950408889634
        piece = tl.load(
            part_out + at[:, None] * HEAD_DIM + dim[None, :],
            mask=written[:, None] & in_head[None, :],
            other=0.0,
        )  # [P, D]
        new_top = tl.maximum(top, tl.max(logs, 0))
        pivot = tl.where(new_top == float("-inf"), 0.0, new_top)
        share = tl.exp2(logs - pivot)
        shrink = tl.exp2(top - pivot)
        acc = acc * shrink + tl.sum(share[:, None] * piece, 0)
        total = total * shrink + tl.sum(share, 0)
        top = new_top
    some = total > 0.0
    safe = tl.where(some, total, 1.0)
    log_sum = tl.where(some, (top + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    heads = kv_heads * group
    to = (batch.to(tl.int64) * queries + row // group) * heads + kv_head * group + row % group
    tl.store(out + to * HEAD_DIM + dim, (acc / safe).to(out.dtype.element_ty), mask=in_head)
    tl.store(lse + to, log_sum)
