"""The GPU program behind `kernels.triton.halving`: one bucket of points, its pairs decided in order.

A tile of ROWS points gets its sums over all points signed before it by matrix products. Inside it the same is
done for 2 * PAIRS points at a time, and only their signs are decided one after the other, in registers. Sums
are kept relative to the largest exponential in them, as in an online softmax: float32 is then enough
whatever the size of the keys. Source: `express.md` section 2.
"""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.programs.kernel_sums import bucket_norms, gram, sums_of_tile, sums_over


@triton.jit
def walk(alpha, cross, limit, PAIRS: tl.constexpr):
    """The signs of a tile: pair i takes -1 where alpha_i, with the pairs before it, exceeds limit_i.

    alpha, limit [T]; cross [T, T], <f_i, f_j> for j < i and 0 elsewhere.
    """
    pair = tl.arange(0, PAIRS)
    signs = tl.zeros([PAIRS], dtype=tl.float32)
    for i in range(PAIRS):
        mine = tl.sum(tl.where((pair == i) & (alpha > limit), -2.0, 0.0), 0) + 1.0
        signs = tl.where(pair == i, mine, signs)
        alpha += mine * tl.sum(tl.where((pair == i)[None, :], cross, 0.0), 1)
    return signs


@triton.jit
def decide(
    sums,
    log_norm_max,
    start,
    bucket,
    randoms,
    bound,
    tie,
    HEAD_DIM: tl.constexpr,
    CHUNK: tl.constexpr,
    PAIRS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    """Signs [T] of the pairs from point `start` on; `sums` [2T] of their points are those over all before.

    Also returns the largest log2 |f_j| so far.
    """
    g, size, top = sums
    keys, values, work, points, _, scale_log2, bias = bucket
    pair = tl.arange(0, PAIRS)  # [T]
    whole = start // 2 + pair < points // 2
    even = start + 2 * pair
    odd = even + 1
    # Kernel values between even (0) and odd (1) points. What pair i owes to pair j before it waits in `cross`
    # [T, T] until the sign of j is known.
    h_0 = tl.load(work + even, mask=whole, other=0.0)
    h_1 = tl.load(work + odd, mask=whole, other=0.0)
    x_00 = gram(keys, even, even, bucket, HEAD_DIM, CHUNK, PRECISION) * scale_log2  # [T, T]
    x_01 = gram(keys, even, odd, bucket, HEAD_DIM, CHUNK, PRECISION) * scale_log2
    x_10 = gram(keys, odd, even, bucket, HEAD_DIM, CHUNK, PRECISION) * scale_log2
    x_11 = gram(keys, odd, odd, bucket, HEAD_DIM, CHUNK, PRECISION) * scale_log2
    x_00 = x_00 - h_0[:, None] - h_0[None, :]
    x_01 = x_01 - h_0[:, None] - h_1[None, :]
    x_10 = x_10 - h_1[:, None] - h_0[None, :]
    x_11 = x_11 - h_1[:, None] - h_1[None, :]
    same = pair[None, :] == pair[:, None]
    self_00 = tl.sum(tl.where(same, x_00, 0.0), 1)
    self_01 = tl.sum(tl.where(same, x_01, 0.0), 1)
    self_11 = tl.sum(tl.where(same, x_11, 0.0), 1)
    before = pair[None, :] < pair[:, None]
    highest = tl.maximum(tl.maximum(x_00, x_01), tl.maximum(x_10, x_11))
    highest = tl.max(tl.where(before, highest, float("-inf")), 1)
    pivot = tl.maximum(highest, tl.max(tl.reshape(top, [PAIRS, 2]), 1))  # [T]
    pivot = tl.where(pivot == float("-inf"), 0.0, pivot)
    shrink = tl.exp2(tl.reshape(top, [PAIRS, 2]) - pivot[:, None])
    g_0, g_1 = tl.split(tl.reshape(g, [PAIRS, 2]) * shrink)
    size_0, size_1 = tl.split(tl.reshape(size, [PAIRS, 2]) * shrink)

    n_0 = tl.load(work + points + even, mask=whole, other=0.0)
    n_1 = tl.load(work + points + odd, mask=whole, other=0.0)
    e = tl.exp2(tl.where(before, x_00 - pivot[:, None], float("-inf")))
    cross = e * (gram(values, even, even, bucket, HEAD_DIM, CHUNK, PRECISION) + bias)
    size_0 += tl.sum(e * n_0[None, :], 1)
    e = tl.exp2(tl.where(before, x_01 - pivot[:, None], float("-inf")))
    y = gram(values, even, odd, bucket, HEAD_DIM, CHUNK, PRECISION) + bias
    y_self = tl.sum(tl.where(same, y, 0.0), 1)
    cross -= e * y
    size_0 += tl.sum(e * n_1[None, :], 1)
    e = tl.exp2(tl.where(before, x_10 - pivot[:, None], float("-inf")))
    cross -= e * (gram(values, odd, even, bucket, HEAD_DIM, CHUNK, PRECISION) + bias)
    size_1 += tl.sum(e * n_0[None, :], 1)
    e = tl.exp2(tl.where(before, x_11 - pivot[:, None], float("-inf")))
    cross += e * (gram(values, odd, odd, bucket, HEAD_DIM, CHUNK, PRECISION) + bias)
    size_1 += tl.sum(e * n_1[None, :], 1)

    # |f_i|^2 from the pair's own four kernel values, as a logarithm: its scale is not that of alpha.
    top_self = tl.maximum(self_00, self_11)
    square = tl.exp2(self_00 - top_self) * n_0 * n_0 + tl.exp2(self_11 - top_self) * n_1 * n_1
    square -= 2.0 * tl.exp2(self_01 - top_self) * y_self
    log_norm = 0.5 * (tl.log2(tl.maximum(square, 1e-37)) + top_self)  # [T]
    log_norm = tl.where(square > 0.0, log_norm, float("-inf"))
    so_far = tl.where(pair[None, :] <= pair[:, None], log_norm[None, :], float("-inf"))
    log_largest = tl.maximum(tl.max(so_far, 1), log_norm_max)
    # Above 2^100 the coin is fair, and an infinity would make a coin of exactly 1/2 NaN.
    log_a = tl.minimum(log_norm + log_largest - pivot, 100.0)
    coin = tl.load(randoms + 1 + start // 2 + pair, mask=whole, other=0.5)
    limit = bound * tl.exp2(log_a) * (2.0 * coin - 1.0).to(tl.float32)
    limit += tie * (size_0 * n_0 + size_1 * n_1)
    return walk(g_0 - g_1, cross, limit, PAIRS), tl.maximum(log_norm_max, tl.max(log_norm, 0))


@triton.jit(
    do_not_specialize=["scale_log2", "points", "coordinates", "centred", "bound", "tie", "fused"],
    do_not_specialize_on_alignment=["randoms", "kept", "work"],
)
def halving_kernel(
    keys,  # [R, S, HEAD_DIM], contiguous, S even
    values,
    randoms,  # [R, S / 2 + 1] float64 in [0, 1), contiguous
    kept,  # [R, S / 2] int64, contiguous
    kept_keys,  # [R, S / 2, HEAD_DIM], contiguous; written where fused is not 0
    kept_values,
    work,  # [R, 6, S] float32: h, n, the signs s of the points; g, size and top of the tile's points
    scale_log2: tl.float32,  # c / log 2
    centred: tl.float32,  # 1 to centre the keys, 0 not to
    bound: tl.float32,  # a_i = bound |f_i| max |f_j|; 0 for greedy signs
    tie: tl.float32,  # sums below this share of the sum of their absolute terms count as 0
    points,
    coordinates,  # HEAD_DIM once more
    fused,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    CHUNK: tl.constexpr,  # coordinates that a product takes at a time where BLOCK_D are too many
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    PAIRS: tl.constexpr,
    PRECISION: tl.constexpr,
):
    number = tl.program_id(0).to(tl.int64)
    keys += number * points * HEAD_DIM
    values += number * points * HEAD_DIM
    work += number * 6 * points
    randoms += number * (points // 2 + 1)
    complement = tl.load(randoms) < 0.5
    bias = bucket_norms(keys, values, work, points, scale_log2, centred, HEAD_DIM, BLOCK_D, COLUMNS)
    tl.debug_barrier()  # what other threads wrote to `work` is read from here on

    bucket = keys, values, work, points, coordinates, scale_log2, bias
    dim = tl.arange(0, BLOCK_D)  # [D]
    log_norm_max = float("-inf")
    # What is the same in every round is computed anew: kept in registers, it would take those of the sums.
    for tile in tl.range(0, points, ROWS, disable_licm=True):
        sums_of_tile(tile, bucket, HEAD_DIM, BLOCK_D, CHUNK, ROWS, COLUMNS, PRECISION)
        tl.debug_barrier()
        for start in tl.range(tile, tl.minimum(tile + ROWS, points), 2 * PAIRS, disable_licm=True):
            at = start + tl.arange(0, 2 * PAIRS)  # [2T]
            inside = at < points
            g = tl.load(work + 3 * points + at, mask=inside, other=0.0)
            size = tl.load(work + 4 * points + at, mask=inside, other=0.0)
            top = tl.load(work + 5 * points + at, mask=inside, other=0.0)
            sums = g, size, top
            sums = sums_over(sums, tile, start, at, bucket, HEAD_DIM, BLOCK_D, CHUNK, 2 * PAIRS, PRECISION)
            signs, log_norm_max = decide(
                sums, log_norm_max, start, bucket, randoms, bound, tie, HEAD_DIM, CHUNK, PAIRS, PRECISION
            )
            signs_of_points = tl.reshape(tl.join(signs, -signs), [2 * PAIRS])
            tl.store(work + 2 * points + at, signs_of_points, mask=inside)
            here = start // 2 + tl.arange(0, PAIRS)  # [T]
            whole = here < points // 2
            chosen = 2 * here + ((signs < 0.0) != complement).to(tl.int32)
            to = number * (points // 2) + here
            tl.store(kept + to, chosen.to(tl.int64), mask=whole)
            if fused != 0:
                shown = whole[:, None] & (dim < HEAD_DIM)[None, :]
                source = chosen[:, None] * HEAD_DIM + dim[None, :]
                k_kept = tl.load(keys + source, mask=shown, other=0.0)
                tl.store(kept_keys + to[:, None] * HEAD_DIM + dim[None, :], k_kept, mask=shown)
                v_kept = tl.load(values + source, mask=shown, other=0.0)
                tl.store(kept_values + to[:, None] * HEAD_DIM + dim[None, :], v_kept, mask=shown)
            tl.debug_barrier()
