"""What all attention programs share: one step of the online softmax, and its end."""

from __future__ import annotations

import triton
import triton.language as tl

from kernels.triton.programs.products import product_onto


@triton.jit
def fold_tile(acc, top, total, scores, scale, v_tile, PRECISION: tl.constexpr):
    """Takes a tile of N keys into the running softmax of M rows.

    acc [M, D] float32, top [M] the largest logit so far, total [M] the sum of exp2(logit - top),
    scores [M, N], v_tile [N, D]. A logit is scores * scale, in units of log 2, and scale is positive: the
    product is left to be fused with the subtraction. Source: Dao et al., FlashAttention-2 (arXiv 2307.08691).
    """
    new_top = tl.maximum(top, tl.max(scores, 1) * scale)
    # A row that has seen nothing yet has top -inf: a finite pivot makes its terms 0; -inf - -inf is NaN.
    pivot = tl.where(new_top == float("-inf"), 0.0, new_top)
    shrink = tl.exp2(top - pivot)
    p = tl.exp2(scores * scale - pivot[:, None])  # [M, N]
    total = total * shrink + tl.sum(p, 1)
    acc = product_onto(acc * shrink[:, None], p.to(v_tile.dtype), v_tile, PRECISION)
    return acc, new_top, total


@triton.jit
def finish_rows(acc, top, total, alive):
    """(out [M, D], natural log-sum-exp [M]); zeros and -inf in rows that saw nothing or are not alive."""
    some = alive & (total > 0.0)
    safe = tl.where(some, total, 1.0)
    out = tl.where(some[:, None], acc / safe[:, None], 0.0)
    log_sum = tl.where(some, (top + tl.log2(safe)) * 0.6931471805599453, float("-inf"))
    return out, log_sum
