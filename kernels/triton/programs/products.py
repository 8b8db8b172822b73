"""Matrix products as all programs take them."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def product(a, b, PRECISION: tl.constexpr):
    """a [M, K] times b [K, N] in float32; PRECISION as `tl.dot` has it, or "widen".

    Triton's interpreter takes bfloat16 for integers in a product; "widen" gives it the numbers in float32.
    """
    if PRECISION == "widen":
        c = tl.dot(a.to(tl.float32), b.to(tl.float32))
    else:
        c = tl.dot(a, b, input_precision=PRECISION)
    return c


@triton.jit
def product_onto(c, a, b, PRECISION: tl.constexpr):
    """c [M, N] float32 plus `product`."""
    if PRECISION == "widen":
        c = tl.dot(a.to(tl.float32), b.to(tl.float32), c)
    else:
        c = tl.dot(a, b, c, input_precision=PRECISION)
    return c
