"""Weighted attention spelled out: the specification that every faster implementation is tested against."""

from __future__ import annotations

import torch
from torch import Tensor


def weighted_attention(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    log_weights: Tensor,
    *,
    scale: float | None = None,
    causal_from: int | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention in which entry i counts w_i times: its logit is scale * <q, k_i> + log w_i.

    q            [B, Hq, S, d]     query head h reads KV head h // (Hq / Hkv)
    keys         [B, Hkv, C, d]
    values       [B, Hkv, C, d_v]
    log_weights  [B, Hkv, C]       -inf hides an entry
    scale        1/sqrt(d) by default
    causal_from  None: every query sees every entry. Else entries before `causal_from` are seen by all
                 queries, and entry causal_from + j by queries j, j+1, ... alone.

    Returns out [B, Hq, S, d_v] in q's dtype and lse [B, Hq, S], the log of the softmax denominator. All
    arithmetic is float32, or float64 where q is; lse has that dtype. A query that sees nothing gets zeros
    and lse -inf. Writes the whole [B, Hq, S, C] matrix. Source: `express.md` section 1.
    """
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    batch, heads, queries, d = q.shape
    kv_heads, entries = keys.shape[1:3]
    grouped = q.to(exact).reshape(batch, kv_heads, heads // kv_heads, queries, d)
    factor = d**-0.5 if scale is None else scale
    logits = torch.einsum("bhgsd,bhcd->bhgsc", grouped, keys.to(exact)) * factor
    logits = logits + log_weights.to(exact)[:, :, None, None, :]
    if causal_from is not None:
        position = torch.arange(entries, device=q.device) - causal_from
        hidden = position > torch.arange(queries, device=q.device)[:, None]
        logits = logits.masked_fill(hidden, -torch.inf)
    lse = logits.logsumexp(-1) if entries else logits.new_full(logits.shape[:-1], -torch.inf)
    # A row that sees nothing has lse -inf; a finite pivot there makes its probabilities 0 instead of NaN.
    pivot = lse.masked_fill(lse == -torch.inf, 0.0)
    out = torch.einsum("bhgsc,bhcv->bhgsv", (logits - pivot[..., None]).exp(), values.to(exact))
    shape = (batch, heads, queries)
    return out.reshape(*shape, values.shape[-1]).to(q.dtype), lse.reshape(shape)
