"""Which blocks of points an Express stream holds after so many tokens: arithmetic alone, no tensors.

Round r starts when N_r = n_out 4^r tokens are held by a base of n_out points of weight 4^r. Three chunks of
N_r tokens follow; each goes through Compress2 down to n_out points of that weight. Then 4 n_out points are
halved twice to the base of the next round. Fewer than 4 n_out tokens are kept as they are (round 0).

A chunk is exactly one bucket of the last level, so three chunks are one run through the levels and need no
boundary between them. Past m_bar halvings the tokens are thinned first: of each run of 2^(2r - m_bar) tokens
one stays, at random.

Source: "Express Language Modeling" (Gong, Carrell, Dwivedi, Mackey, arXiv 2606.10944, 2026), reconstructed
from its published statements.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import dataclass

from kernels.compress2 import Levels

SMALLEST = 2
"""n_out of the smallest stream worth having."""


@dataclass(frozen=True, slots=True)
class Block:
    """`size` points that stand for `weight` tokens each."""

    name: str
    size: int
    weight: int


@dataclass(frozen=True, slots=True)
class Schedule:
    """n_out: points of a base, a power of two. m_bar: most halvings of a chunk, at most log2(n_out) + 1."""

    n_out: int
    m_bar: int

    def __post_init__(self) -> None:
        if self.n_out < 1 or self.n_out & (self.n_out - 1):
            raise ValueError(f"n_out is {self.n_out}; allowed is a power of two")
        if not 0 <= self.m_bar <= self.n_out.bit_length():
            raise ValueError(
                f"m_bar is {self.m_bar}; n_out={self.n_out} allows 0 to {self.n_out.bit_length()},"
                " because the smallest bucket must hold two points"
            )

    @classmethod
    def of(cls, n_out: int) -> Schedule:
        """The default m_bar, log2(n_out): the smallest bucket holds four points."""
        return cls(n_out, n_out.bit_length() - 1)

    @classmethod
    def fitting(cls, room: int, m_bar: int | None = None) -> Schedule:
        """The largest n_out whose `bound` is at most `room`, or else the smallest there is."""
        schedule = cls._limited(SMALLEST, m_bar)
        while (larger := cls._limited(2 * schedule.n_out, m_bar)).bound <= room:
            schedule = larger
        return schedule

    @classmethod
    def _limited(cls, n_out: int, m_bar: int | None) -> Schedule:
        schedule = cls.of(n_out)
        if m_bar is None:
            return schedule
        if m_bar < 0:
            raise ValueError(f"m_bar is {m_bar}; allowed is 0 or more")
        return cls(n_out, min(m_bar, schedule.m_bar + 1))

    def round_of(self, tokens: int) -> int:
        """The round that the next token belongs to."""
        return max(0, (tokens // self.n_out).bit_length() - 1) // 2

    def start(self, number: int) -> int:
        """Tokens before the round."""
        return self.n_out << 2 * number if number else 0

    def end(self, number: int) -> int:
        """Tokens after the round."""
        return self.n_out << 2 * (number + 1)

    def base(self, number: int) -> int:
        """Points of the round's base."""
        return self.n_out if number else 0

    def levels(self, number: int) -> Levels:
        """What the round's points go through."""
        halvings = min(2 * number, self.m_bar)
        return Levels(4 * self.n_out >> halvings, halvings)

    def run(self, number: int) -> int:
        """Tokens of which one is taken into the levels."""
        return 1 << max(0, 2 * number - self.m_bar)

    def blocks(self, tokens: int) -> tuple[Block, ...]:
        """What is held after `tokens`, oldest first; sizes times weights sum to `tokens`.

        The base, the finished chunks, what waits in the levels from the last to the first, and of a run that
        is not yet complete the one token that stands for it.
        """
        number = self.round_of(tokens)
        levels, run = self.levels(number), self.run(number)
        points, unfinished = divmod(tokens - self.start(number), run)
        *waiting, output = levels.sizes(points)
        weight = 1 << 2 * number
        return (
            Block("base", self.base(number), weight),
            Block("chunks", output, weight),
            *(Block(f"level {j}", waiting[j], run << j) for j in reversed(range(levels.count))),
            Block("run", int(unfinished > 0), unfinished),
        )

    def size(self, tokens: int) -> int:
        """Points held after `tokens`; never more than `bound`, and one token adds at most one."""
        return sum(block.size for block in self.blocks(tokens))

    def streamed(self, tokens: int, room: int) -> int:
        """How few of `tokens` must enter the stream for its points and the tokens after them to fit `room`.

        One token more in the stream frees its place and takes at most one there, so what is held never grows
        as tokens enter, and the least number is found by bisection. room is at least `bound`.
        """
        return bisect_left(range(tokens), True, key=lambda taken: tokens - taken + self.size(taken) <= room)

    @property
    def bound(self) -> int:
        """The most points ever held.

        n_out for the base, 2 n_out for two finished chunks, and less than 3 n_out in the levels of the third,
        just before it is complete. From the first round in which runs are thinned the sizes repeat.
        """
        return max(self.size(self.end(number) - 1) for number in range(self.m_bar // 2 + 2))
