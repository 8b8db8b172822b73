"""Attention of a segment: over the weighted entries of the past, and causally over the segment itself.

The two parts are computed apart and merged by their log-sum-exp, so that neither keys are copied together
nor a mask of the size of the segment is written.
"""

from __future__ import annotations

import torch
from torch import Tensor

from kernels import reference
from kernels.dispatch import backend, taken
from kernels.merge import merge
from kernels.triton.support import unsupported

_flash_cpu = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu.default
PREFIX = ("prefix_keys", "prefix_values", "prefix_log_weights")
_TILE_ROWS = 256  # queries of the portable path at a time: bounds its matrix of logits


def segment_attention(
    q: Tensor,
    prefix_keys: Tensor,
    prefix_values: Tensor,
    prefix_log_weights: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention of a segment's queries to C weighted entries before it and causally to the segment's keys.

    q                   [B, Hq, S, d]      Hq a multiple of Hkv
    prefix_keys         [B, Hkv, C, d]     C may be 0; already rotated, like all keys here
    prefix_values       [B, Hkv, C, d_v]
    prefix_log_weights  [B, Hkv, C]        float32; -inf hides an entry
    keys                [B, Hkv, S', d]    S' >= S: the queries belong to the last S of the S' keys
    values              [B, Hkv, S', d_v]
    scale               1/sqrt(d) by default

    Returns out [B, Hq, S, d_v] in q's dtype and lse [B, Hq, S] float32 (float64 where q is). Equals
    `reference.weighted_attention` over all entries with causal_from = C + S' - S. Not made for gradients:
    call it in inference mode. ValueError where shapes do not fit together.
    """
    check(q, keys, values)
    check(q, prefix_keys, prefix_values, prefix_log_weights, names=PREFIX)
    queries, entries, own = q.shape[2], prefix_keys.shape[2], keys.shape[2]
    if own < queries:
        raise ValueError(f"keys has {own} entries; q has {queries} queries and each needs its own key")
    chosen = backend(q.device)
    if chosen == "triton" and taken(unsupported(keys, values, q, prefix_keys, prefix_values, scale=scale)):
        from kernels.triton.attention import segment_attention as triton_attention

        return triton_attention(q, prefix_keys, prefix_values, prefix_log_weights, keys, values, scale=scale)
    if chosen == "reference":
        zeros = prefix_log_weights.new_zeros(keys.shape[:3])
        return reference.weighted_attention(
            q,
            torch.cat([prefix_keys, keys], dim=2),
            torch.cat([prefix_values, values], dim=2),
            torch.cat([prefix_log_weights, zeros], dim=2),
            scale=scale,
            causal_from=entries + own - queries,
        )
    earlier = own - queries
    result = attend(q, keys[:, :, earlier:], values[:, :, earlier:], causal=True, scale=scale)
    if earlier:
        result = merge(*attend(q, keys[:, :, :earlier], values[:, :, :earlier], scale=scale), *result)
    if entries:
        past = attend(q, prefix_keys, prefix_values, log_weights=prefix_log_weights, scale=scale)
        result = merge(*past, *result)
    return result


def attend(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    *,
    log_weights: Tensor | None = None,
    causal: bool = False,
    scale: float | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention to one set of entries, on torch: (out, lse) as in `segment_attention`.

    log_weights  [B, Hkv, C], or [B, Hkv, S, C] to differ between queries
    causal       query i sees entries 0..i alone; C must equal S, and log_weights must be None
    """
    batch, heads, queries, d = q.shape
    kv_heads = keys.shape[1]
    # Query heads that share a KV head become the heads of one batch item, and its keys are broadcast over
    # them by a stride of 0: nothing is repeated in memory. A single query's heads become the queries of one
    # head instead, so that its keys are also read only once.
    wide = 1 if queries == 1 and not causal else heads // kv_heads
    grouped = q.reshape(batch * kv_heads, wide, -1, d)
    shared_keys, shared_values = (x.reshape(batch * kv_heads, 1, *x.shape[2:]) for x in (keys, values))
    bias = None
    if log_weights is not None:
        bias = log_weights.reshape(batch * kv_heads, 1, -1, keys.shape[2])
        bias = bias.to(torch.float64 if q.dtype == torch.float64 else torch.float32)
    if q.device.type == "cpu" and d == values.shape[-1]:
        out, lse = _flash_cpu(
            grouped,
            shared_keys.expand(-1, wide, -1, -1),
            shared_values.expand(-1, wide, -1, -1),
            0.0,
            causal,
            attn_mask=bias,
            scale=scale,
        )
        if bias is not None:
            # The kernel returns zeros and lse 0 for a query that sees nothing; merging needs lse -inf there.
            lse = lse.masked_fill(bias.amax(-1).isneginf(), -torch.inf)
    else:
        out, lse = _attend_portable(grouped, shared_keys, shared_values, bias, causal, scale)
    return out.reshape(batch, heads, queries, -1), lse.reshape(batch, heads, queries)


def _attend_portable(
    q: Tensor, keys: Tensor, values: Tensor, bias: Tensor | None, causal: bool, scale: float | None
) -> tuple[Tensor, Tensor]:
    """Any device, any head sizes: q [N, G, S, d] over keys [N, 1, C, d], a tile of queries at a time."""
    exact = torch.float64 if q.dtype == torch.float64 else torch.float32
    keys, values = keys.to(exact), values.to(exact)
    factor = q.shape[-1] ** -0.5 if scale is None else scale
    outs, sums = [], []
    for start in range(0, q.shape[2], _TILE_ROWS):
        rows = q[:, :, start : start + _TILE_ROWS].to(exact) * factor
        last = start + rows.shape[2] if causal else keys.shape[2]
        logits = rows @ keys[:, :, :last].transpose(-1, -2)
        if bias is not None:
            logits = logits + (bias if bias.shape[2] == 1 else bias[:, :, start : start + rows.shape[2]])
        if causal:
            hidden = torch.ones(rows.shape[2], last, dtype=torch.bool, device=q.device).triu_(start + 1)
            logits = logits.masked_fill(hidden, -torch.inf)
        lse = logits.logsumexp(-1)
        # A finite pivot where nothing is seen: probabilities 0 instead of NaN.
        pivot = lse.masked_fill(lse == -torch.inf, 0.0).unsqueeze(-1)
        outs.append(((logits - pivot).exp() @ values[:, :, :last]).to(q.dtype))
        sums.append(lse)
    return torch.cat(outs, dim=2), torch.cat(sums, dim=2)


def check(
    q: Tensor,
    keys: Tensor,
    values: Tensor,
    log_weights: Tensor | None = None,
    *,
    names: tuple[str, str, str] = ("keys", "values", "log_weights"),
) -> None:
    """ValueError where shapes do not fit together. Looks at no element: this runs once a layer and token.

    names  of the caller's arguments that these are
    """
    of_keys, of_values, of_weights = names
    if q.dim() != 4 or keys.dim() != 4 or values.dim() != 4:
        raise ValueError(
            f"q, {of_keys} and {of_values} have {q.dim()}, {keys.dim()} and {values.dim()} dimensions;"
            " allowed is [batch, heads, length, head size]"
        )
    if keys.shape[0] != q.shape[0] or keys.shape[3] != q.shape[3] or q.shape[1] % max(1, keys.shape[1]):
        raise ValueError(
            f"{of_keys} has shape {tuple(keys.shape)}; q of shape {tuple(q.shape)} allows its own batch"
            " and head size, and KV heads that divide its heads"
        )
    if values.shape[:3] != keys.shape[:3]:
        raise ValueError(
            f"{of_values} has shape {tuple(values.shape)}; {of_keys} allow {tuple(keys.shape[:3])} in front"
        )
    if log_weights is not None and log_weights.shape != keys.shape[:3]:
        raise ValueError(
            f"{of_weights} has shape {tuple(log_weights.shape)}; allowed is {tuple(keys.shape[:3])}"
        )
