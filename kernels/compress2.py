"""Compress2: a stream of points through levels of buckets, each halving what the level before it kept.

A bucket of level j holds b_j = b_0 2^j points. A full bucket is halved; four halved buckets of a level are
one bucket of the next. After m levels 1/2^m of the points are left. What each level holds follows from the
number of points that have entered, and nothing else.

Source: Compress (Shetty, Dwivedi, Mackey, arXiv 2111.07941) as used in Express (arXiv 2606.10944).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from kernels.weighted_kv import WeightedKV, concat

HalveBuckets = Callable[[WeightedKV, int, int, int], WeightedKV]
"""(points [*rows, k * b], b, level, number of the first bucket) -> [*rows, k * b / 2], weights doubled."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The sizes of the buckets: `smallest` is b_0 (even), `count` is m (0: points pass through unhalved)."""

    smallest: int
    count: int

    def __post_init__(self) -> None:
        if self.smallest < 2 or self.smallest % 2:
            raise ValueError(f"smallest is {self.smallest}; allowed is an even number, 2 or more")
        if self.count < 0:
            raise ValueError(f"count is {self.count}; allowed is 0 or more")

    def bucket(self, level: int) -> int:
        """Points in a bucket of `level`."""
        return self.smallest << level

    def arrived(self, points: int) -> tuple[int, ...]:
        """Points that ever came to each of the levels 0..m after `points` entered; level m is the output."""
        counts = [points]
        for level in range(self.count):
            bucket = self.bucket(level)
            counts.append(counts[-1] // bucket * (bucket // 2))
        return tuple(counts)

    def sizes(self, points: int) -> tuple[int, ...]:
        """Points that wait in each of the levels 0..m-1, and all of the output last."""
        counts = self.arrived(points)
        return (*(count % self.bucket(level) for level, count in enumerate(counts[:-1])), counts[-1])

    def push(
        self, held: Sequence[WeightedKV], points: int, new: WeightedKV, halve: HalveBuckets
    ) -> list[WeightedKV]:
        """What the levels hold after `new`, if `held` is what they held when `points` had entered."""
        return self.holding(self.through(held, points, new, halve), points, points + len(new))

    def through(
        self, held: Sequence[WeightedKV], points: int, new: WeightedKV, halve: HalveBuckets
    ) -> list[WeightedKV]:
        """For each of the levels 0..m what was held there and what came on it as `new` passed, in order.

        All buckets of a level that become full are halved in one call. Never changes its arguments.
        """
        arrived = self.arrived(points)
        passed = []
        for level in range(self.count):
            bucket = self.bucket(level)
            here = concat([held[level], new]) if len(held[level]) else new
            passed.append(here)
            full = len(here) // bucket
            if not full:
                return [*passed, *held[level + 1 :]]
            new = halve(here.slice(0, full * bucket), bucket, level, arrived[level] // bucket)
        return [*passed, concat([held[-1], new]) if len(held[-1]) else new]

    def holding(self, passed: Sequence[WeightedKV], start: int, points: int) -> list[WeightedKV]:
        """What the levels hold after `points`, any number from `start` to the last that went `through`.

        passed  of `through`, from the holdings after `start` points
        """
        held = []
        for level, (before, after) in enumerate(zip(self.arrived(start), self.arrived(points), strict=True)):
            bucket = self.bucket(level)
            # Of the output nothing ever leaves; of another level all that fills buckets.
            leaves = 0 if level == self.count else bucket
            first, gone = before // bucket * leaves, after // bucket * leaves
            held.append(passed[level].slice(gone - first, after - first))
        return held
