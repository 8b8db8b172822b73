"""Everything that is counted, by name, with the only labels that there can be.

Orchestrators come and go, and a stage may be delivered twice, so nothing is counted in a process: each count
is part of the transition in Redis that it counts (`scripts.py`), and happens exactly when that happens. A
count is one field of a hash: the metric's name and the values of its labels, joined by "|".
"""

from __future__ import annotations

import bisect
import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, TypeAlias, get_args

from orchestrator.jobs import PHASES, STAGES, TERMINAL, Job, JobResult, Kind, Stage

Counts: TypeAlias = Mapping[str, float]
Labels: TypeAlias = Mapping[str, tuple[str, ...]]
SUM = "sum"


@dataclasses.dataclass(frozen=True, slots=True)
class _Metric:
    """`labels` holds every value that a label may have: so the number of series is known beforehand."""

    name: str
    help: str
    labels: Labels = dataclasses.field(default_factory=dict)

    def series(self) -> Iterator[tuple[str, ...]]:
        """Every combination of label values."""
        return itertools.product(*self.labels.values())

    def field(self, *values: str) -> str:
        return "|".join((self.name, *values))


@dataclasses.dataclass(frozen=True, slots=True)
class Counter(_Metric):
    def by(self, *values: str, amount: float = 1) -> Counts:
        """`amount` more, for one value of each label."""
        return {self.field(*values): amount}


@dataclasses.dataclass(frozen=True, slots=True)
class Histogram(_Metric):
    """`bounds` are the upper ends of the buckets, ascending; one more bucket takes what is above them."""

    bounds: tuple[float, ...] = ()

    def at(self, value: float, *values: str) -> Counts:
        """One observation, in its bucket alone: the exposition adds the buckets up."""
        bucket = str(bisect.bisect_left(self.bounds, value))
        return {self.field(*values, bucket): 1, self.field(*values, SUM): max(0.0, value)}


_SHORT = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0)
_LONG = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 1800.0, 3600.0, 7200.0, 21600.0)
_RATIO = (0.001, 0.01, 0.02, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5, 0.75, 1.0)
_KIND: Labels = {"kind": get_args(Kind)}
_STAGE: Labels = {"stage": STAGES}

SUBMITTED = Counter("jobs_submitted", "Jobs that were accepted.", _KIND)
ENDED = Counter("jobs_ended", "Jobs that ended, by outcome.", {"outcome": tuple(sorted(TERMINAL)), **_KIND})
JOB_SECONDS = Histogram("job_seconds", "From acceptance to the result of a job that is done.", _KIND, _LONG)
FIRST_TOKEN = Histogram(
    "time_to_first_token_seconds", "From acceptance to the first token of the text.", _KIND, _LONG
)
STAGE_SECONDS = Histogram(
    "stage_seconds", "A stage that succeeded, from its claim to its outcome.", {"stage": PHASES}, _SHORT
)
ERROR_ESTIMATE = Histogram(
    "error_estimate",
    "Relative attention error of the states of jobs that are done, as the workers estimate it.",
    _KIND,
    _RATIO,
)
RETRIES = Counter("stage_retries", "Stages that failed and were tried again.", _STAGE)
LEASE_LOSSES = Counter("lease_losses", "Prefilled segments that were lost before they were compressed.")
LAPSED = Counter("claims_lapsed", "Stages whose orchestrator stopped in the middle.", _STAGE)
TOKENS_READ = Counter("tokens_read", "Document tokens that were prefilled and folded into a state.")
TOKENS_WRITTEN = Counter("tokens_written", "Tokens of texts.")
STATE_BYTES = Counter("state_written_bytes", "Bytes of compressed states that were stored.")
SEGMENTS = Counter(
    "store_segments",
    "Segments that ingest found covered by a stored state (hit) or left to be read (miss).",
    {"result": ("hit", "miss")},
)
COUNTERS = (
    SUBMITTED, ENDED, RETRIES, LEASE_LOSSES, LAPSED, TOKENS_READ, TOKENS_WRITTEN, STATE_BYTES, SEGMENTS,
)  # fmt: skip
HISTOGRAMS = (JOB_SECONDS, FIRST_TOKEN, STAGE_SECONDS, ERROR_ESTIMATE)


def of_stage(job: Job, fields: Mapping[str, Any], segment: int, seconds: float) -> Counts:
    """What a stage that moves its job on counts: its time, and what it found, read and stored.

    `fields` are those that it writes into the job, `segment` is where the job goes on.
    """
    counts = {**STAGE_SECONDS.at(seconds, job.stage)}
    if job.stage == "ingest":
        counts |= SEGMENTS.by("hit", amount=segment)
        counts |= SEGMENTS.by("miss", amount=fields["segments"] - segment)
    if job.stage == "compress":
        counts |= TOKENS_READ.by(amount=fields["prefill_tokens"] - job.prefill_tokens)
        counts |= STATE_BYTES.by(amount=fields["state_bytes"])
    return counts


def of_last(job: Job, result: JobResult, seconds: float, apart: Mapping[str, float]) -> Counts:
    """What the stage counts that ends a job; `apart` are those of its seconds that have another name."""
    stage = job.stage
    counts = {**STAGE_SECONDS.at(seconds - sum(apart.values()), stage)}
    for name, part in apart.items():
        counts |= STAGE_SECONDS.at(part, name)
    if result.error_estimate is not None:
        counts |= ERROR_ESTIMATE.at(result.error_estimate, job.kind)
    return counts


def of_token(job: Job, index: int, now: float) -> Counts:
    """What a token counts that is recorded at `now` (seconds since the epoch)."""
    first = FIRST_TOKEN.at(now - job.created, job.kind) if index == 0 else {}
    return {**TOKENS_WRITTEN.by(), **first}


def of_end(job: Job, outcome: str, now: float) -> Counts:
    """What the end of a job counts."""
    seconds = JOB_SECONDS.at(now - job.created, job.kind) if outcome == "done" else {}
    return {**ENDED.by(outcome, job.kind), **seconds}


def of_retry(stage: Stage, *, lease_lost: bool, lapsed: bool) -> Counts:
    """What another try of a failed stage counts."""
    return {
        **RETRIES.by(stage),
        **(LEASE_LOSSES.by() if lease_lost else {}),
        **(LAPSED.by(stage) if lapsed else {}),
    }
