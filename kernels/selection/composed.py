"""A selector keeps the best entries exactly; what it would throw away goes into an Express stream instead.

Source: `express.md` section 5: nothing is thrown away without being represented.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import ClassVar

import torch
from torch import Tensor

from kernels.express import ExpressStream
from kernels.halving import kernel_halving
from kernels.schedule import Schedule
from kernels.selection.importance import ImportancePolicy
from kernels.selection.observation import Observation, Probe
from kernels.selection.observing import ObservingPolicy
from kernels.selection.passages import PassagesPolicy
from kernels.selection.policy import CompressedKV, SelectionPolicy, check_segment
from kernels.selection.snapkv import SnapKVPolicy
from kernels.weighted_kv import WeightedKV, concat


@dataclass(frozen=True, slots=True)
class ComposedPolicy(SelectionPolicy):
    """Sinks, an Express stream, entries chosen by score, recent tokens: in this order.

    Entries leave the exact part, the worst score first, only when the budget would be exceeded otherwise; how
    many have left follows from the number of tokens seen, as the layout of the stream does.

    sinks     first tokens kept exactly
    recent    share of the budget for the last tokens
    stream    share of the budget for the stream: n_out is the largest power of two whose bound fits
    temper    multiplies log-weights in attention
    question  an instruction to observe after each segment; "" where none is known
    tail      without a question: how many of a segment's own last queries are observed
    """

    selector: ClassVar[type[ObservingPolicy]]
    budget: int
    seed: int = 0
    sinks: int = 32
    recent: float = 0.125
    stream: float = 0.375
    temper: float = 0.5
    question: str = ""
    tail: int = 64

    def __post_init__(self) -> None:
        for name in ("recent", "stream", "temper"):
            if not 0.0 <= getattr(self, name) <= 1.0:
                raise ValueError(f"{name} is {getattr(self, name)}; allowed is 0 to 1")
        smallest = Schedule.fitting(0).bound
        least = int(self.budget * self.stream)
        if least < smallest or self.budget - self.sinks - self.recent_tokens - least < 1 or self.sinks < 0:
            raise ValueError(
                f"entries is {self.budget}; allowed is room for {self.sinks} sinks, {self.recent_tokens}"
                f" recent tokens, a stream of {smallest} entries or more in {least}, and one entry more"
            )
        self._scorer()  # refuses what it does not allow

    @property
    def entries(self) -> int:
        return self.budget

    @property
    def recent_tokens(self) -> int:
        """Tokens kept exactly at the end."""
        return int(self.budget * self.recent)

    @property
    def probe(self) -> Probe | None:
        return self._scorer().probe

    @property
    def parameters(self) -> dict[str, str | int | float]:
        own = {field.name: getattr(self, field.name) for field in fields(self)}
        return {"entries": own.pop("budget"), **own}

    @property
    def schedule(self) -> Schedule:
        """What the stream looks like."""
        return Schedule.fitting(int(self.budget * self.stream))

    def fold(
        self, cache: CompressedKV, segment: WeightedKV, observed: Observation | None = None
    ) -> CompressedKV:
        check_segment(cache, segment)
        known, seen, schedule = concat([cache.entries, segment]), cache.seen + len(segment), self.schedule
        scores = self._scorer().score(cache, known, observed)
        before, after = self._streamed(schedule, cache.seen), self._streamed(schedule, seen)
        # No token streams before the budget is full: what comes first are the sinks, then the stream.
        start = self.sinks + schedule.size(before) if before else min(self.sinks, len(known))
        exact, exact_scores = known.slice(start, len(known)), scores[..., start:]
        if after == before:
            return CompressedKV(known, seen, scores)
        leaving, staying = self._parted(exact_scores, after - before)
        stream = ExpressStream(schedule, kernel_halving, self.seed)
        tail = stream.push(known.slice(self.sinks, start), before, exact.gather(leaving))
        parts = [known.slice(0, self.sinks), tail, exact.gather(staying)]
        kept = [scores[..., : self.sinks], torch.zeros_like(tail.weights), exact_scores.gather(-1, staying)]
        return CompressedKV(concat(parts), seen, torch.cat(kept, dim=-1))

    def log_weights(self, entries: WeightedKV) -> Tensor:
        return entries.weights.log() * self.temper

    def _parted(self, scores: Tensor, count: int) -> tuple[Tensor, Tensor]:
        """Places of the `count` worst of [*rows, T], recent ones excepted, and of all others: ascending."""
        ranked = scores.clone()
        ranked[..., scores.shape[-1] - self.recent_tokens :] = torch.inf
        order = ranked.argsort(dim=-1, stable=True)
        return order[..., :count].sort(dim=-1).values, order[..., count:].sort(dim=-1).values

    def _scorer(self) -> ObservingPolicy:
        return self.selector(
            self.budget,
            self.seed,
            sinks=self.sinks,
            recent=self.recent,
            temper=self.temper,
            question=self.question,
            tail=self.tail,
        )

    def _streamed(self, schedule: Schedule, seen: int) -> int:
        """How many of `seen` tokens are in the stream: as few as the budget allows."""
        if seen <= self.budget:
            return 0
        return schedule.streamed(seen - self.sinks, self.budget - self.sinks)


class SnapKVExpressPolicy(ComposedPolicy):
    """SnapKV's choice exactly, the rest as a coreset."""

    __slots__ = ()
    name: ClassVar[str] = "snapkv+express"
    selector = SnapKVPolicy


class ImportanceExpressPolicy(ComposedPolicy):
    """The most important entries exactly, the rest as a coreset by halving instead of a draw."""

    __slots__ = ()
    name: ClassVar[str] = "importance+express"
    selector = ImportancePolicy


class PassagesExpressPolicy(ComposedPolicy):
    """The passages that the question looks at exactly, the rest as a coreset."""

    __slots__ = ()
    name: ClassVar[str] = "passages+express"
    selector = PassagesPolicy
