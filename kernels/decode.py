"""Attention of one new token, or a few, over a whole cache: the inner step of generating text."""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import reference
from kernels.attention import attend, check
from kernels.dispatch import backend, taken
from kernels.triton.support import unsupported

MOST_QUERIES = 8


def decode_attention(
    q: Tensor, keys: Tensor, values: Tensor, log_weights: Tensor, *, scale: float | None = None
) -> tuple[Tensor, Tensor]:
    """Attention of 1 to 8 queries over all weighted entries; the queries' own entries are the last ones.

    q            [B, Hq, S, d]     1 <= S <= 8, Hq a multiple of Hkv
    keys         [B, Hkv, C, d]    C >= S, already rotated
    values       [B, Hkv, C, d_v]
    log_weights  [B, Hkv, C]       float32; -inf hides an entry
    scale        1/sqrt(d) by default

    Query i sees entries 0..C-S+i, which is everything for a single one. Returns out [B, Hq, S, d_v] in q's
    dtype and lse [B, Hq, S] float32 (float64 where q is). Equals `reference.weighted_attention` with
    causal_from = C - S. ValueError where shapes do not fit together.
    """
    check(q, keys, values, log_weights)
    queries, entries = q.shape[2], keys.shape[2]
    if not 1 <= queries <= min(MOST_QUERIES, entries):
        raise ValueError(f"q has {queries} queries; allowed are 1 to {min(MOST_QUERIES, entries)}")
    chosen = backend(q.device)
    if chosen == "triton" and taken(unsupported(keys, values, q, scale=scale)):
        from kernels.triton.decode import decode_attention as triton_decode

        return triton_decode(q, keys, values, log_weights, scale=scale)
    if chosen == "reference":
        return reference.weighted_attention(
            q, keys, values, log_weights, scale=scale, causal_from=entries - queries
        )
    if queries > 1:
        hidden = torch.ones(queries, entries, dtype=torch.bool, device=q.device).triu_(entries - queries + 1)
        log_weights = log_weights.unsqueeze(2).masked_fill(hidden, -torch.inf)
    return attend(q, keys, values, log_weights=log_weights, scale=scale)
