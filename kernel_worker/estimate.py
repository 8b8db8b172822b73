"""What a fold costs in attention, as the last queries that came before it see it.

An estimate, by which to compare budgets on one document. It can be had when a segment is folded, because what
the fold drops is still there then; the price is the attention of a few queries to one KV head of each layer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from kernel_worker.cache import Positions
from kernel_worker.rotary import Angles, Rotary, dense_positions
from kernels.attention import attend
from kernels.selection.policy import CompressedKV, SelectionPolicy
from kernels.weighted_kv import WeightedKV, concat

QUERIES = 16
_REMEMBERED = 0.5  # of the square of what was lost before
_DIGITS = 6


@dataclass(frozen=True, slots=True)
class ReadSegment:
    """What the model made of a segment of S tokens.

    entries  [layers, kv_heads, S, d], un-rotated, weight 1
    queries  [layers, Hq, min(QUERIES, S), d]: those of its last tokens, un-rotated
    scale    of the softmax
    """

    entries: WeightedKV
    queries: Tensor
    scale: float

    def __len__(self) -> int:
        return len(self.entries)

    @property
    def nbytes(self) -> int:
        return self.entries.nbytes + self.queries.nbytes


def fold_errors(
    policy: SelectionPolicy,
    before: CompressedKV,
    segment: ReadSegment,
    after: CompressedKV,
    rotary: Rotary,
    positions: Positions,
) -> Tensor:
    """How far a fold moves what the segment's last queries attend to: [layers], 0 where it moves nothing.

    |out after - out before| / |out before|, norms over queries and the query heads of one KV head; before,
    everything in `before` and the segment is there. The queries stand where the next tokens would, behind all
    entries, each time at the places that the model would use: that entries move closer together counts, too.
    Call it in inference mode.
    """
    unfolded = concat([_sampled(before.entries), _sampled(segment.entries)])
    pair = tuple(
        _out(entries, segment, rotary, positions, policy.log_weights(entries), after.seen)
        for entries in (unfolded, _sampled(after.entries))
    )
    length, moved = ((out**2).sum(dim=(1, 2, 3)).sqrt() for out in (pair[0], pair[1] - pair[0]))
    return moved / length.clamp_min(torch.finfo(torch.float32).tiny)


def accumulated(so_far: Sequence[float] | None, errors: Tensor) -> tuple[float, ...] | None:
    """The figure of a state, for each layer: from that of the state before and the fold's errors [layers].

    Losses of different folds are unlike each other, so that their squares add up. Each counts half as much as
    the next one's: what comes next attends mostly to what was read last. So the figure does not grow with the
    length of a document: it is at most sqrt(2) times the largest error of a fold.

    None where it cannot be told: one of the two is unknown, or not a number.
    """
    new = errors.tolist()
    if so_far is None or not all(map(math.isfinite, new)):
        return None
    return tuple(
        round(math.sqrt(_REMEMBERED * old**2 + error**2), _DIGITS)
        for old, error in zip(so_far, new, strict=True)
    )


def _out(
    entries: WeightedKV,
    segment: ReadSegment,
    rotary: Rotary,
    positions: Positions,
    log_weights: Tensor,
    seen: int,
) -> Tensor:
    """What the queries get from sampled entries: [layers, G, queries, d_v] float32."""
    layers, heads = segment.entries.rows
    queries = _one_head(segment.queries.reshape(layers, heads, -1, *segment.queries.shape[2:])).float()
    keys, values = entries.keys.float(), entries.values.float()
    first = len(entries) if positions == "dense" else seen
    places = dense_positions(first + queries.shape[2], 0, keys.device)
    angles = rotary.angles(places, keys)
    own: Angles = (angles[0][:, :first], angles[1][:, :first])
    if positions == "original":
        # Each layer's head holds other tokens. To look angles up is cheaper than to compute them.
        tokens = entries.tokens[:, 0].long()
        own = (angles[0][0, tokens], angles[1][0, tokens])
    keys = rotary.rotate(keys, own)
    queries = rotary.rotate(queries, (angles[0][:, first:], angles[1][:, first:]))
    return attend(queries, keys, values, log_weights=log_weights, scale=segment.scale)[0]


def _sampled(entries: WeightedKV) -> WeightedKV:
    """Those of one KV head of each layer: [layers, 1, C, d]."""
    return WeightedKV(*(_one_head(tensor).unsqueeze(1) for tensor in entries.tensors()))


def _one_head(tensor: Tensor) -> Tensor:
    """[layers, kv_heads, ...] -> [layers, ...]: in each layer the next KV head."""
    layers, heads = tensor.shape[:2]
    return torch.stack([tensor[layer, layer % heads] for layer in range(layers)])
