"""Express: a stream of any length in a bounded number of weighted points.

`schedule` says how many points there are and what each stands for; here the points themselves move. The
layout is a function of the number of tokens alone and the randomness one of (seed, round, level, bucket), so
the same tokens give the same points, however they were cut into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from kernels.halving import Halving
from kernels.schedule import Schedule
from kernels.seeds import derive, uniforms
from kernels.weighted_kv import WeightedKV, concat

_HALVING, _THINNING = 1, 2  # what random numbers are for


@dataclass(frozen=True, slots=True)
class ExpressStream:
    """Express(n_out, m_bar, Halve) over tokens of weight 1, all rows at once; any `Halving` can be put in."""

    schedule: Schedule
    halving: Halving
    seed: int

    def push(self, held: WeightedKV, tokens: int, new: WeightedKV) -> WeightedKV:
        """The points after `new`, if `held` are the points after `tokens` tokens.

        held    [*rows, schedule.size(tokens)], from an earlier call or empty
        new     [*rows, S], tokens of weight 1 that follow

        Returns [*rows, schedule.size(tokens + S)] points, oldest first. Pure: changes no argument.
        """
        while len(new):
            number = self.schedule.round_of(tokens)
            take = min(len(new), self.schedule.end(number) - tokens)
            held = self._push_in_round(held, tokens, new.slice(0, take), number)
            tokens, new = tokens + take, new.slice(take, len(new))
        return held

    def _push_in_round(self, held: WeightedKV, tokens: int, new: WeightedKV, number: int) -> WeightedKV:
        base, output, *waiting, run = _split(held, [block.size for block in self.schedule.blocks(tokens)])
        levels, passed = self.schedule.levels(number), tokens - self.schedule.start(number)
        points, run = self._thin(run, passed, new, number)
        *waiting, output = levels.push(
            [*reversed(waiting), output],
            passed // self.schedule.run(number),
            points,
            partial(self._halve_at, number),
        )
        if tokens + len(new) < self.schedule.end(number):
            return concat([base, output, *reversed(waiting), run])
        return self._next_base(concat([base, output]), number)

    def history(self, tokens: WeightedKV) -> History:
        """What the stream holds after every number of `tokens`, all of which are known now.

        Equals `push` bit for bit, in a few large calls: a level halves a whole round's buckets in one.
        Memory of about twice the tokens of a round that is not thinned, less later.
        """
        rounds: list[_Round] = []
        base = tokens.slice(0, 0)
        for number in range(self.schedule.round_of(len(tokens)) + 1):
            end = min(len(tokens), self.schedule.end(number))
            mine = tokens.slice(self.schedule.start(number), end)
            points, _ = self._thin(tokens.slice(0, 0), 0, mine, number)
            levels = self.schedule.levels(number)
            none = [tokens.slice(0, 0)] * (levels.count + 1)
            passed = levels.through(none, 0, points, partial(self._halve_at, number))
            rounds.append(_Round(base, passed))
            if end == self.schedule.end(number):
                base = self._next_base(concat([base, passed[-1]]), number)
        return History(self, tokens, tuple(rounds))

    def _next_base(self, points: WeightedKV, number: int) -> WeightedKV:
        """The 4 n_out points at a round's end, halved twice."""
        levels = self.schedule.levels(number)
        for level in (levels.count, levels.count + 1):
            points = self._halve_at(number, points, len(points), level, 0)
        return points

    def _halve_at(self, number: int, points: WeightedKV, bucket: int, level: int, first: int) -> WeightedKV:
        """Halves consecutive buckets [*rows, k * bucket], the first of which is the `first` of its level."""
        count = len(points) // bucket
        keys, values = (
            x.reshape(*points.rows, count, bucket, x.shape[-1]) for x in (points.keys, points.values)
        )
        device = keys.device
        randoms = uniforms(
            derive(self.seed, _HALVING, number, level),
            _row_numbers(points).unsqueeze(-1),
            torch.arange(first, first + count, device=device).unsqueeze(-1),
            torch.arange(bucket // 2 + 1, device=device),
        )
        kept = self.halving(keys, values, randoms)  # [*rows, k, bucket / 2]
        offsets = torch.arange(0, len(points), bucket, device=device).unsqueeze(-1)
        return points.gather((kept + offsets).flatten(-2)).scaled(2.0)

    def _thin(
        self, held: WeightedKV, passed: int, new: WeightedKV, number: int
    ) -> tuple[WeightedKV, WeightedKV]:
        """The tokens that complete runs leave, and the one, if any, that stands for the run in progress.

        Each token of a run replaces the one that stood for those before it with probability one over its
        place in the run, so that at every length each is equally likely to stand.
        """
        run = self.schedule.run(number)
        if run == 1:
            return new, held
        begun = passed % run  # tokens for which the one held stands
        places = torch.arange(passed, passed + len(new), device=new.keys.device)
        u = uniforms(derive(self.seed, _THINNING, number), _row_numbers(new), places)
        takes = u * (places % run + 1) < 1.0  # [*rows, S]
        pad = -(begun + len(new)) % run
        takes = torch.nn.functional.pad(takes, (begun, pad))
        takes = takes.reshape(*new.rows, -1, run)
        slots = (takes * torch.arange(1, run + 1, device=takes.device)).amax(-1) - 1
        slots = slots + torch.arange(0, slots.shape[-1] * run, run, device=slots.device)
        # Slots before `begun`, or none (-1) in the first run, are the token held; the new ones follow on it.
        index = (slots - begun + len(held)).clamp_min(0) if begun else slots
        stands = concat([held, new]).gather(index)
        complete = (begun + len(new)) // run
        weights = torch.full_like(stands.weights, float(run))
        if pad:
            weights[..., -1] = float(run - pad)
        stands = replace(stands, weights=weights)
        return stands.slice(0, complete), stands.slice(complete, len(stands))


@dataclass(frozen=True, slots=True)
class _Round:
    """The base that a round began with, and what passed through each of its levels."""

    base: WeightedKV
    passed: list[WeightedKV]


@dataclass(frozen=True, slots=True)
class History:
    """What an Express stream held after every number of tokens: see `ExpressStream.history`."""

    stream: ExpressStream
    tokens: WeightedKV
    rounds: tuple[_Round, ...]

    def held(self, tokens: int) -> WeightedKV:
        """What `push` holds after the first `tokens`, [*rows, schedule.size(tokens)]."""
        schedule = self.stream.schedule
        number = schedule.round_of(tokens)
        start, run = schedule.start(number), schedule.run(number)
        points, unfinished = divmod(tokens - start, run)
        now = self.rounds[number]
        *waiting, output = schedule.levels(number).holding(now.passed, 0, points)
        last = self.tokens.slice(tokens - unfinished, tokens)
        _, stands = self.stream._thin(last.slice(0, 0), points * run, last, number)
        return concat([now.base, output, *reversed(waiting), stands])


def _row_numbers(entries: WeightedKV) -> Tensor:
    """A number for each row, [*rows, 1] int64."""
    rows = entries.rows
    return torch.arange(rows.numel(), device=entries.keys.device).view(*rows, 1)


def _split(entries: WeightedKV, sizes: Sequence[int]) -> list[WeightedKV]:
    """Consecutive blocks of the given sizes, which must sum to all."""
    if sum(sizes) != len(entries):
        raise ValueError(f"held has {len(entries)} points; after so many tokens there are {sum(sizes)}")
    blocks, start = [], 0
    for size in sizes:
        blocks.append(entries.slice(start, start + size))
        start += size
    return blocks
