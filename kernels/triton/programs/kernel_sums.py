"""Sums of kernel values over a bucket's points, by matrix products: what halving decides by.

Sums are kept relative to the largest exponential in them, as in an online softmax: float32 is then enough
whatever the size of the keys. Source: `express.md` section 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.programs.products import product, product_onto


@triton.jit
def bucket_norms(
    k_base,
    v_base,
    work,
    points,
    scale_log2,
    centred,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Writes h_p = c <k_p, mean key> and n_p = |(v_p, b)| to work[0] and work[1]; returns b^2."""
    lane = tl.arange(0, BLOCK)  # [N]
    dim = tl.arange(0, BLOCK_D)  # [D]
    in_head = (dim < HEAD_DIM)[None, :]
    mean = tl.zeros([BLOCK_D], dtype=tl.float32)
    largest = tl.zeros([BLOCK_D], dtype=tl.float32)
    for start in range(0, points, BLOCK):
        shown = (start + lane < points)[:, None] & in_head
        at = (start + lane)[:, None]
        mean += tl.sum(tl.load(k_base + at * HEAD_DIM + dim, mask=shown, other=0.0).to(tl.float32), 0)
        v_tile = tl.load(v_base + at * HEAD_DIM + dim, mask=shown, other=0.0).to(tl.float32)
        largest = tl.maximum(largest, tl.max(tl.abs(v_tile), 0))
    mean = mean * (centred * scale_log2 / points)
    bias = tl.max(largest, 0)
    bias = bias * bias
    for start in range(0, points, BLOCK):
        inside = start + lane < points
        shown = inside[:, None] & in_head
        at = (start + lane)[:, None]
        k_tile = tl.load(k_base + at * HEAD_DIM + dim, mask=shown, other=0.0).to(tl.float32)
        v_tile = tl.load(v_base + at * HEAD_DIM + dim, mask=shown, other=0.0).to(tl.float32)
        tl.store(work + start + lane, tl.sum(k_tile * mean[None, :], 1), mask=inside)
        tl.store(work + points + start + lane, tl.sqrt(tl.sum(v_tile * v_tile, 1) + bias), mask=inside)
    return bias


@triton.jit
def gram(
    base, row_at, column_at, bucket, HEAD_DIM: tl.constexpr, CHUNK: tl.constexpr, PRECISION: tl.constexpr
):
    """<x_r, x_c> of points row_at [M] and column_at [N], reading CHUNK coordinates at a time: [M, N]."""
    _, _, _, points, coordinates, _, _ = bucket
    c = tl.zeros([row_at.shape[0], column_at.shape[0]], dtype=tl.float32)
    dim = tl.arange(0, CHUNK)
    # Up to a number that the compiler does not know: unrolled, the loop would need too many registers.
    end = HEAD_DIM if CHUNK >= HEAD_DIM else coordinates
    for first in tl.range(0, end, CHUNK, num_stages=1):
        inside = (first + dim < HEAD_DIM)[None, :]
        a_at = row_at[:, None] * HEAD_DIM + first + dim[None, :]
        b_at = column_at[:, None] * HEAD_DIM + first + dim[None, :]
        a = tl.load(base + a_at, mask=(row_at < points)[:, None] & inside, other=0.0)
        b = tl.load(base + b_at, mask=(column_at < points)[:, None] & inside, other=0.0)
        c = product_onto(c, a, tl.trans(b), PRECISION)
    return c


@triton.jit
def sums_over(
    sums,
    begin,
    end,
    at,
    bucket,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Adds points begin..end, all signed and a multiple of COLUMNS, to the sums of the points at [M].

    sums = (g [M], size [M], top [M]): the sum of s kappa, and what bounds the sum of its absolute terms but
    for the row's own n, both divided by exp2(top). bucket = (keys, values, work, points, coordinates,
    c / log 2, b^2), as `halving_kernel` has them.
    """
    g, size, top = sums
    keys, values, work, points, _, scale_log2, bias = bucket
    lane = tl.arange(0, COLUMNS)  # [N]
    dim = tl.arange(0, BLOCK_D)  # [D]
    in_head = (dim < HEAD_DIM)[None, :]
    shown = (at < points)[:, None] & in_head
    rows_at = at[:, None] * HEAD_DIM + dim[None, :]
    tile_at = lane[:, None] * HEAD_DIM + dim[None, :]
    h_rows = tl.load(work + at, mask=at < points, other=0.0)
    if CHUNK == BLOCK_D:
        k_rows = tl.load(keys + rows_at, mask=shown, other=0.0)  # [M, D]
        v_rows = tl.load(values + rows_at, mask=shown, other=0.0)
    for before in range(begin, end, COLUMNS):
        h_columns = tl.load(work + before + lane)
        n_columns = tl.load(work + points + before + lane)
        s_columns = tl.load(work + 2 * points + before + lane)
        if CHUNK == BLOCK_D:
            k_columns = tl.load(keys + before * HEAD_DIM + tile_at, mask=in_head, other=0.0)  # [N, D]
            v_columns = tl.load(values + before * HEAD_DIM + tile_at, mask=in_head, other=0.0)
            x = product(k_rows, tl.trans(k_columns), PRECISION)  # [M, N]
            y = product(v_rows, tl.trans(v_columns), PRECISION)
        else:
            x = gram(keys, at, before + lane, bucket, HEAD_DIM, CHUNK, PRECISION)
            y = gram(values, at, before + lane, bucket, HEAD_DIM, CHUNK, PRECISION)
        x = x * scale_log2 - h_rows[:, None] - h_columns[None, :]
        new_top = tl.maximum(top, tl.max(x, 1))
        e = tl.exp2(x - new_top[:, None])
        shrink = tl.exp2(top - new_top)
        g = g * shrink + tl.sum(e * (y + bias) * s_columns[None, :], 1)
        size = size * shrink + tl.sum(e * n_columns[None, :], 1)
        top = new_top
    return g, size, top


@triton.jit
def sums_of_tile(
    tile,
    bucket,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Writes the sums of points tile..tile + ROWS over all points before `tile` to work[3..5]."""
    _, _, work, points, _, _, _ = bucket
    at = tile + tl.arange(0, ROWS)  # [M]
    nothing = tl.zeros([ROWS], dtype=tl.float32)
    sums = nothing, nothing, tl.full([ROWS], float("-inf"), dtype=tl.float32)
    g, size, top = sums_over(sums, 0, tile, at, bucket, HEAD_DIM, BLOCK_D, CHUNK, COLUMNS, PRECISION)
    inside = at < points
    tl.store(work + 3 * points + at, g, mask=inside)
    tl.store(work + 4 * points + at, size, mask=inside)
    tl.store(work + 5 * points + at, top, mask=inside)
