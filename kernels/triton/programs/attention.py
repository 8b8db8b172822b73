"""The GPU program behind `kernels.triton.attention`: one online softmax over weighted entries and a segment.

A program owns BLOCK_M rows of one KV head. A row is one query of one of the query heads that share the KV
head (row r: query r // group, head r % group), so every tile of keys and values is read once per KV head.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.programs.products import product
from kernels.triton.programs.softmax import finish_rows, fold_tile


@triton.jit(
    do_not_specialize=["scale_log2", "kv_heads", "group", "queries", "entries", "own", "ragged", "zero"],
    do_not_specialize_on_alignment=["log_weights", "lse", "prefix_lengths", "lengths"],
)
def attention_kernel(
    q,  # [B, Hq, S, HEAD_DIM]
    prefix_keys,  # [B, Hkv, C, HEAD_DIM]
    prefix_values,
    log_weights,  # [B, Hkv, C] float32, contiguous
    keys,  # [B, Hkv, own, HEAD_DIM]
    values,
    out,  # [B, S, Hq, HEAD_DIM], contiguous
    lse,  # [B, S, Hq] float32, contiguous
    prefix_lengths,  # [B] int32, read where ragged is not 0: entries and keys of a sequence that count
    lengths,
    q_batch: tl.int64,  # strides in elements
    q_head: tl.int64,
    q_row,
    prefix_k_batch: tl.int64,
    prefix_k_head: tl.int64,
    prefix_k_row,
    prefix_v_batch: tl.int64,
    prefix_v_head: tl.int64,
    prefix_v_row,
    k_batch: tl.int64,
    k_head: tl.int64,
    k_row,
    v_batch: tl.int64,
    v_head: tl.int64,
    v_row,
    scale_log2: tl.float32,  # softmax scale / log 2
    kv_heads,
    group,
    queries,
    entries,
    own,
    ragged,
    zero,  # always 0; see the end
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_M: tl.constexpr,
    BLOCK_N: tl.constexpr,
    PRECISION: tl.constexpr,
):
    # The last rows see the most keys: they start first, so that no long program is left for the end.
    block = tl.num_programs(0) - 1 - tl.program_id(0)
    batch = tl.program_id(1) // kv_heads
    kv_head = tl.program_id(1) % kv_heads
    seen = entries
    known = own
    if ragged != 0:
        seen = tl.load(prefix_lengths + batch)
        known = tl.load(lengths + batch)

    row = block * BLOCK_M + tl.arange(0, BLOCK_M)  # [M]
    query = row // group
    head = kv_head * group + row % group
    position = own - queries + query  # [M] where the row's own key is among the segment's
    dim = tl.arange(0, BLOCK_D)  # [D]
    in_head = (dim < HEAD_DIM)[None, :]
    q_tile = tl.load(
        q + batch * q_batch + (head * q_head + query.to(tl.int64) * q_row)[:, None] + dim,
        mask=((query < queries) & (position < known))[:, None] & in_head,
        other=0.0,
    )  # [M, D]

    acc = tl.zeros([BLOCK_M, BLOCK_D], dtype=tl.float32)
    top = tl.full([BLOCK_M], float("-inf"), dtype=tl.float32)
    total = tl.zeros([BLOCK_M], dtype=tl.float32)
    column = tl.arange(0, BLOCK_N)  # [N]

    # Offsets inside a tile are 32 bits wide; 64-bit arithmetic is done once per tile, on its base.
    k_base = prefix_keys + batch * prefix_k_batch + kv_head * prefix_k_head
    v_base = prefix_values + batch * prefix_v_batch + kv_head * prefix_v_head
    w_base = log_weights + tl.program_id(1).to(tl.int64) * entries
    k_tile_at = column[:, None] * prefix_k_row + dim[None, :]  # [N, D]
    v_tile_at = column[:, None] * prefix_v_row + dim[None, :]
    for start in range(0, seen, BLOCK_N):
        inside = start + column < seen
        shown = inside[:, None] & in_head
        k_tile = tl.load(k_base + k_tile_at, mask=shown, other=0.0)
        log2_weight = tl.load(w_base + start + column, mask=inside, other=float("-inf")) * 1.4426950408889634
        scores = product(q_tile, tl.trans(k_tile), PRECISION)  # [M, N]
        scores = scores * scale_log2 + log2_weight[None, :]
        v_tile = tl.load(v_base + v_tile_at, mask=shown, other=0.0)
        acc, top, total = fold_tile(acc, top, total, scores, 1.0, v_tile, PRECISION)
        k_base += BLOCK_N * prefix_k_row
        v_base += BLOCK_N * prefix_v_row

    first = own - queries + (block * BLOCK_M) // group
    last = own - queries + tl.minimum((block * BLOCK_M + BLOCK_M - 1) // group, queries - 1)
    end = tl.minimum(last + 1, known)
    whole = tl.minimum(first + 1, end) // BLOCK_N * BLOCK_N  # before it, every row sees every key
    k_base = keys + batch * k_batch + kv_head * k_head
    v_base = values + batch * v_batch + kv_head * v_head
    k_tile_at = column[:, None] * k_row + dim[None, :]
    v_tile_at = column[:, None] * v_row + dim[None, :]
    for _start in range(0, whole, BLOCK_N):
        k_tile = tl.load(k_base + k_tile_at, mask=in_head, other=0.0)
        scores = product(q_tile, tl.trans(k_tile), PRECISION)
        v_tile = tl.load(v_base + v_tile_at, mask=in_head, other=0.0)
        acc, top, total = fold_tile(acc, top, total, scores, scale_log2, v_tile, PRECISION)
        k_base += BLOCK_N * k_row
        v_base += BLOCK_N * v_row
    for start in range(whole, end, BLOCK_N):
        at = start + column
        shown = (at < end)[:, None] & in_head
        k_tile = tl.load(k_base + k_tile_at, mask=shown, other=0.0)
        scores = product(q_tile, tl.trans(k_tile), PRECISION)
        scores = tl.where(at[None, :] <= position[:, None], scores, float("-inf"))
        v_tile = tl.load(v_base + v_tile_at, mask=shown, other=0.0)
        acc, top, total = fold_tile(acc, top, total, scores, scale_log2, v_tile, PRECISION)
        k_base += BLOCK_N * k_row
        v_base += BLOCK_N * v_row

    # Adding a zero that the compiler does not know as one has it compute the rows anew, instead of keeping
    # them in registers through the loops, where there is none to spare.
    row = block * BLOCK_M + zero + tl.arange(0, BLOCK_M)
    query = row // group
    written = query < queries
    acc, log_sum = finish_rows(acc, top, total, written & (own - queries + query < known))
    heads = kv_heads * group
    row_out = (batch.to(tl.int64) * queries + query) * heads + kv_head * group + row % group  # [M]
    tl.store(
        out + row_out[:, None] * HEAD_DIM + dim[None, :],
        acc.to(out.dtype.element_ty),
        mask=written[:, None] & in_head,
    )
    tl.store(lse + row_out, log_sum, mask=written)
