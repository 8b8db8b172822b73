"""The GPU program behind `kernels.triton.gather`: all four tensors of weighted entries in one launch."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(
    do_not_specialize=["w_batch", "t_batch", "picks"],
    do_not_specialize_on_alignment=[
        "weights",
        "tokens",
        "index",
        "out_weights",
        "out_tokens",
    ],
)
def gather_kernel(
    keys,  # [R, C, HEAD_DIM]
    values,
    weights,  # [R, C] float32, its entries contiguous
    tokens,  # [R, C] int32, its entries contiguous
    index,  # [R, P] int64, contiguous
    out_keys,  # [R, P, HEAD_DIM], contiguous
    out_values,
    out_weights,  # [R, P], contiguous
    out_tokens,
    k_batch: tl.int64,  # strides in elements
    k_row,
    v_batch: tl.int64,
    v_row,
    w_batch: tl.int64,
    t_batch: tl.int64,
    picks,
    factor: tl.float32,
    HEAD_DIM: tl.constexpr,
    BLOCK_D: tl.constexpr,
    BLOCK_P: tl.constexpr,
):
    """BLOCK_P picked entries of one row; weights are multiplied by `factor`."""
    row = tl.program_id(0).to(tl.int64)
    place = tl.program_id(1) * BLOCK_P + tl.arange(0, BLOCK_P)  # [P]
    inside = place < picks
    dim = tl.arange(0, BLOCK_D)  # [D]
    both = inside[:, None] & (dim < HEAD_DIM)[None, :]
    to = row * picks + place
    source = tl.load(index + to, mask=inside, other=0)
    k_tile = tl.load(keys + row * k_batch + source[:, None] * k_row + dim[None, :], mask=both)
    tl.store(out_keys + to[:, None] * HEAD_DIM + dim[None, :], k_tile, mask=both)
    v_tile = tl.load(values + row * v_batch + source[:, None] * v_row + dim[None, :], mask=both)
    tl.store(out_values + to[:, None] * HEAD_DIM + dim[None, :], v_tile, mask=both)
    weight = tl.load(weights + row * w_batch + source, mask=inside)
    tl.store(out_weights + to, weight * factor, mask=inside)
    token = tl.load(tokens + row * t_batch + source, mask=inside)
    tl.store(out_tokens + to, token, mask=inside)
