"""Express: a stream of any length in a bounded number of weighted points.

`schedule` says how many points there are and what each stands for; here the points themselves move. The
layout is a function of the number of tokens alone and the randomness one of (seed, round, level, bucket), so
the same tokens give the same points, however they were cut into pieces.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

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

        def halve(full: WeightedKV, bucket: int, level: int, first: int) -> WeightedKV:
            return self._halve(full, bucket, number, level, first)

        *waiting, output = levels.push(
            [*reversed(waiting), output], passed // self.schedule.run(number), points, halve
        )
        if tokens + len(new) < self.schedule.end(number):
            return concat([base, output, *reversed(waiting), run])
        twice = concat([base, output])
        for level in (levels.count, levels.count + 1):
            twice = halve(twice, len(twice), level, 0)
        return twice

    def _halve(self, points: WeightedKV, bucket: int, number: int, level: int, first: int) -> WeightedKV:
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
