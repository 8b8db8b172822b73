"""How far a job is, worked out from its events alone; the displays draw it."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from orchestrator.events import Event
from orchestrator.jobs import PHASES, REREAD


@dataclass
class StageProgress:
    """`done` of `total`: segments while reading, tokens while writing; `first` is where this job began."""

    total: float
    first: float
    done: float
    seconds: float = 0.0

    @property
    def fraction(self) -> float:
        return min(1.0, self.done / self.total) if self.total else 0.0


@dataclass
class Tracker:
    """Feed it every event of a job, in order."""

    segment_tokens: int
    max_new_tokens: int
    stages: dict[str, StageProgress] = field(default_factory=dict)
    current: str | None = None
    remark: str | None = None  # why it does not go on right now
    ended: str | None = None
    _since: float = 0.0  # of the running stage, on the store's clock
    _clock_offset: float = 0.0  # store's clock minus ours

    def add(self, event: Event) -> None:
        """Events of unknown kinds are ignored."""
        self._clock_offset = event.time - time.time()
        data = event.data
        match event.kind:
            case "stage":
                self._enter(str(data["stage"]), int(data["segment"]), int(data["segments"]), event.time)
            case "progress":
                before = 0 if data["stage"] == REREAD else int(data["segment"])
                self._advance(str(data["stage"]), before + float(data["fraction"]))
            case "token":
                self._advance("decode", float(data["index"]) + 1)
            case "waiting" | "retry":
                self.remark = str(data["reason"])
            case "done" | "failed" | "cancelled":
                self._leave(event.time)
                self.ended = event.kind
                if event.kind == "done":
                    for progress in self.stages.values():
                        progress.total = progress.done  # a text may end before its longest length

    def seconds(self, stage: str) -> float:
        """Spent in a stage so far, the running moment included."""
        running = time.time() + self._clock_offset - self._since if stage == self.current else 0.0
        return self.stages[stage].seconds + max(0.0, running)

    def tokens_per_second(self, stage: str) -> float:
        """Of prefill and decode; 0 while nothing can be said."""
        progress, seconds = self.stages[stage], self.seconds(stage)
        amount = (progress.done - progress.first) * (self.segment_tokens if stage == "prefill" else 1)
        return amount / seconds if seconds > 0 and amount > 0 else 0.0

    def _enter(self, stage: str, segment: int, segments: int, now: float) -> None:
        self._leave(now)
        self.current, self._since, self.remark = stage, now, None
        reading = stage in ("prefill", "compress")
        total = {"ingest": 1, "rank": 1, REREAD: 1, "decode": self.max_new_tokens}.get(stage, segments)
        begin = segment if reading else 0
        self.stages.setdefault(stage, StageProgress(total=total, first=begin, done=begin)).total = total
        self._finish_stages_before(stage, segment)

    def _finish_stages_before(self, stage: str, segment: int) -> None:
        """Where a job stands tells what it has behind it, whether or not anything reported so."""
        if stage != "ingest":
            self._advance("ingest", 1)
        if stage in ("prefill", "compress"):
            self._advance("prefill", segment + (stage == "compress"))
            self._advance("compress", segment)
        if stage in ("rank", REREAD, "decode"):
            for behind in PHASES[1 : PHASES.index(stage)]:
                if behind in self.stages and behind != REREAD:
                    self._advance(behind, self.stages[behind].total)

    def _leave(self, now: float) -> None:
        if self.current is not None:
            self.stages[self.current].seconds += max(0.0, now - self._since)
        self.current = None

    def _advance(self, stage: str, done: float) -> None:
        if stage in self.stages:
            self.stages[stage].done = max(self.stages[stage].done, done)
            self.remark = None


def in_order(stages: dict[str, StageProgress]) -> list[str]:
    """The names of the stages that were begun, in the order of a job."""
    return [stage for stage in PHASES if stage in stages]
