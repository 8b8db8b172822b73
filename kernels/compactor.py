"""A compactor: a stream of any length in a given number of weighted points, nearly all of them in use.

Points of level j stand for 2^j tokens. Tokens enter level 0 until the room is full; then the lightest level
that is full is halved into the next one, which makes room for more. A level k below the highest is full at a
share of the room that falls as (2/3)^k / 3, so that all of them together just fit and the highest get most.

`express` must leave room for the most it will ever hold; this holds nearly that much at all times, which
halves the error in the same memory (`benchmarks/halving.py`). The sizes are those of the quantile sketch KLL
(Karnin, Lang, Liberty, "Optimal Quantile Approximation in Streams", arXiv 1603.05346, 2016).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from kernels.halving import Halving
from kernels.seeds import derive, uniforms
from kernels.weighted_kv import WeightedKV, concat

_COMPACTING = 3  # what random numbers are for, apart from those of `express`
_LEAST = 8  # points of a full level, however far below the highest
LEAST_ROOM = 4 * _LEAST
"""The smallest room of a stream."""


@dataclass(frozen=True, slots=True)
class CompactorStream:
    """At most `room` points for tokens of weight 1, all rows at once; any `Halving` can be put in.

    What it holds after n tokens depends on these tokens alone, not on how they were cut into pieces: a level
    is halved when a token finds no room and not before, with randomness of (seed, level, n).
    """

    room: int
    halving: Halving
    seed: int

    def __post_init__(self) -> None:
        if self.room < LEAST_ROOM:
            raise ValueError(f"room is {self.room}; allowed is {LEAST_ROOM} or more")

    def push(self, held: WeightedKV, tokens: int, new: WeightedKV) -> WeightedKV:
        """The points after `new`, if `held` are the points after `tokens` tokens.

        held    [*rows, at most room], from an earlier call or empty; heaviest first
        new     [*rows, S], tokens of weight 1 that follow

        Returns [*rows, at most room] points, heaviest first, hence oldest first. Pure: changes no argument.
        """
        levels = _levels(held)
        sizes = [sum(map(len, pieces)) for pieces in levels]
        taken = 0
        while taken < len(new):
            free = self.room - sum(sizes)
            if free:
                here = min(free, len(new) - taken)
                levels[0].append(new.slice(taken, taken + here))
                sizes[0], taken = sizes[0] + here, taken + here
                continue
            self._compact(levels, sizes, tokens + taken)
        pieces = [piece for level in reversed(levels) for piece in level]
        return concat(pieces) if pieces else held

    def _compact(self, levels: list[list[WeightedKV]], sizes: list[int], tokens: int) -> None:
        """Halves the lightest full level, in place; an odd point, its latest, stays."""
        level = self._lightest_full(sizes)
        points = concat(levels[level])
        half = len(points) // 2
        full, rest = points.slice(0, 2 * half), points.slice(2 * half, len(points))
        rows = torch.arange(points.rows.numel(), device=points.keys.device).view(*points.rows, 1)
        randoms = uniforms(
            derive(self.seed, _COMPACTING, level, tokens),
            rows,
            torch.arange(half + 1, device=points.keys.device),
        )
        kept = full.gather(self.halving(full.keys, full.values, randoms)).scaled(2.0)
        if level + 1 == len(levels):
            levels.append([])
            sizes.append(0)
        levels[level], levels[level + 1] = ([rest] if len(rest) else []), [*levels[level + 1], kept]
        sizes[level], sizes[level + 1] = len(rest), sizes[level + 1] + half

    def _lightest_full(self, sizes: list[int]) -> int:
        for level, size in enumerate(sizes):
            below = len(sizes) - 1 - level
            if size >= max(_LEAST, self.room * 2**below // 3 ** (below + 1)):
                return level
        # Only where many levels of the least size crowd a small room: the one with most to give.
        return max(range(len(sizes)), key=sizes.__getitem__)


def _levels(held: WeightedKV) -> list[list[WeightedKV]]:
    """The points of each level, lightest first; all rows have the same weights in the same places."""
    if not len(held):
        return [[]]
    weights = held.weights.reshape(-1, len(held))[0].tolist()
    levels: list[list[WeightedKV]] = [[] for _ in range(int(weights[0]).bit_length())]
    end = len(held)
    for level, pieces in enumerate(levels):
        size = weights.count(float(1 << level))
        if size:
            pieces.append(held.slice(end - size, end))
        end -= size
    if end:
        raise ValueError(f"held has {end} points whose weights are no powers of two, or not heaviest first")
    return levels
