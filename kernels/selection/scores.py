"""What an entry is worth to a probe's queries: the scores that query-aware policies choose by."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from kernels.selection.observation import Observation

Reduction = Literal["mean", "max"]

_QUERIES = 256  # at a time: bounds the matrix of logits where a probe is as long as a segment


def attention_scores(observed: Observation, log_weights: Tensor, reduction: Reduction) -> Tensor:
    """Attention that one token of each entry gets, mean or largest over a KV head's queries: [*rows, C].

    log_weights [layers, kv_heads, C] float32, as attention adds them. The entry itself gets its weight times
    as much. The result is float32.
    """
    layers = [_layer_scores(observed, layer, weights, reduction) for layer, weights in enumerate(log_weights)]
    return torch.stack(layers)


def _layer_scores(observed: Observation, layer: int, log_weights: Tensor, reduction: Reduction) -> Tensor:
    logits = observed.logits(layer).flatten(1, 2)  # [kv_heads, G P, C]
    parts = []
    for some in torch.split(logits, _QUERIES, dim=1):
        lse = (some + log_weights.unsqueeze(1)).logsumexp(-1, keepdim=True)
        share = (some - lse).exp()
        parts.append(share.sum(1) if reduction == "mean" else share.amax(1))
    together = torch.stack(parts)
    return together.sum(0) / logits.shape[1] if reduction == "mean" else together.amax(0)


def shared_scores(scores: Tensor, sinks: int) -> Tensor:
    """One score for all rows: mean over rows of each row's share outside of the sinks, [*rows, C]."""
    body = scores.clone()
    body[..., :sinks] = 0
    shares = body / body.sum(-1, keepdim=True).clamp_min(torch.finfo(body.dtype).tiny)
    return shares.flatten(0, -2).mean(0).expand_as(scores)


def pooled(scores: Tensor, width: int, kind: Reduction) -> Tensor:
    """Largest or mean score of the `width` neighbours around each entry (odd width): [*rows, C]."""
    if width <= 1 or scores.shape[-1] == 0:
        return scores
    flat = scores.flatten(0, -2).unsqueeze(1)
    if kind == "max":
        pool = functional.max_pool1d(flat, width, stride=1, padding=width // 2)
    else:
        pool = functional.avg_pool1d(flat, width, 1, width // 2, count_include_pad=False)
    return pool.reshape(scores.shape)


def spread(scores: Tensor, before: int, after: int) -> Tensor:
    """Each entry lends its score to `before` entries in front and `after` behind, falling linearly to 0.

    [*rows, C] -> [*rows, C]: the largest of what an entry has and what it is lent.
    """
    lent = scores.clone()
    for distance in range(1, min(after, scores.shape[-1] - 1) + 1):
        share = scores[..., :-distance] * (1 - distance / (after + 1))
        lent[..., distance:] = torch.maximum(lent[..., distance:], share)
    for distance in range(1, min(before, scores.shape[-1] - 1) + 1):
        share = scores[..., distance:] * (1 - distance / (before + 1))
        lent[..., :-distance] = torch.maximum(lent[..., :-distance], share)
    return lent
