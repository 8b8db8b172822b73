"""Exact combination of attention over disjoint sets of entries, by their log-sum-exp."""

from __future__ import annotations

import torch
from torch import Tensor


def merge(out_a: Tensor, lse_a: Tensor, out_b: Tensor, lse_b: Tensor) -> tuple[Tensor, Tensor]:
    """Attention over the union of two disjoint sets of entries, from attention over each.

    out_a, out_b  [..., d_v]  one dtype
    lse_a, lse_b  [...]       log of the softmax denominators; -inf where a set is empty (then out is 0)

    Returns (out, lse) of the same shapes and dtypes; lse -inf and zeros where both sets are empty.
    """
    # sigmoid(b - a) = exp(b) / (exp(a) + exp(b)); -inf minus -inf is NaN, and any share of two zeros is zero.
    share = torch.sigmoid(lse_b - lse_a).nan_to_num_(nan=0.0).unsqueeze(-1)
    lse = torch.logaddexp(lse_a, lse_b)
    if out_a.dtype == share.dtype:
        return torch.lerp(out_a, out_b, share), lse
    return torch.lerp(out_a.to(share.dtype), out_b.to(share.dtype), share).to(out_a.dtype), lse
