"""A sketch of one segment: few weighted entries over which a question is as likely as over the whole segment.

Source: `express.md` section 8. First and last tokens stay exact; the rest is halved again and again, so that
sums over *all* of the segment's attention stay right, which a choice of its heavy entries would not give.
"""

from __future__ import annotations

import torch

from kernels.halving import Halving, kernel_halving
from kernels.seeds import derive, uniforms
from kernels.weighted_kv import WeightedKV, concat

SMALLEST = 16
"""Entries between the exact ends: enough for what each of 16 halvings, of 65,536 tokens, may leave over."""


def sketch(
    segment: WeightedKV,
    entries: int,
    *,
    seed: int,
    first: int = 32,
    last: int = 32,
    halving: Halving = kernel_halving,
) -> WeightedKV:
    """Exactly `entries` entries for a longer segment of tokens of weight 1, in the order of the tokens.

    first, last  tokens that stay exact
    seed         decides every coin; give each segment its own

    A segment of up to `entries` tokens is its own sketch. The weights always sum to the segment's tokens.
    Raises ValueError where `entries` has no room beside the exact tokens.
    """
    if first < 0 or last < 0 or entries < first + last + SMALLEST:
        raise ValueError(
            f"entries is {entries}; allowed is {SMALLEST} or more beside {first} first and {last} last tokens"
        )
    if len(segment) <= entries:
        return segment
    points, rest = segment.slice(first, len(segment) - last), segment.slice(len(segment) - last, len(segment))
    room, level = entries - first, 0
    while len(points) + len(rest) > room:
        # Points in one halving must weigh alike: an odd one leaves the game with the weight that it has.
        even = len(points) // 2 * 2
        points, rest = points.slice(0, even), concat([points.slice(even, len(points)), rest])
        # The last time only as many are halved as must go: room is not wasted.
        ended = 2 * min(len(points) + len(rest) - room, even // 2)
        halved = _halved(points.slice(0, ended), derive(seed, level), halving)
        if ended < even:
            halved = concat([halved, points.slice(ended, even)])
        points, level = halved, level + 1
    return concat([segment.slice(0, first), points, rest])


def _halved(points: WeightedKV, seed: int, halving: Halving) -> WeightedKV:
    rows = torch.arange(points.rows.numel(), device=points.keys.device).view(*points.rows, 1)
    coins = torch.arange(len(points) // 2 + 1, device=points.keys.device)
    kept = halving(points.keys, points.values, uniforms(seed, rows, coins))
    return points.gather(kept).scaled(2.0)
