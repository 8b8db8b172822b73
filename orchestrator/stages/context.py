"""What a stage has at hand, and what it answers."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any, TypeAlias

from cache_store.errors import ObjectDamaged, ObjectMissing
from cache_store.layout import StateMeta, state_meta
from cache_store.manifest import Manifest
from cache_store.store import CacheStore
from cache_store.worker_registry import WorkerRecord
from orchestrator.calls import Calls
from orchestrator.claim import Claim
from orchestrator.job_store import JobStore
from orchestrator.jobs import REREAD, Job, JobResult, Stage
from orchestrator.pool import Pool
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.settings import Settings
from protos.kernel_worker_pb2 import StatePlan

_PROGRESS_SECONDS = 0.2


@dataclasses.dataclass(frozen=True, slots=True)
class Next:
    """The stage is done: what to write into the job, and where it goes on.

    `progress` tells that the job has come further than ever, so that its failed tries are forgotten;
    `superseded` names a state that nothing needs any more; `hold` keeps the worker reserved for what follows.
    """

    stage: Stage
    segment: int
    fields: Mapping[str, Any]
    progress: bool = False
    superseded: str = ""
    hold: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Finish:
    """The job is done. `result.seconds` is filled in by the runner; `apart` are seconds of the stage that are
    told under a name of their own."""

    result: JobResult
    superseded: str = ""
    apart: Mapping[str, float] = dataclasses.field(default_factory=dict)


Outcome: TypeAlias = Next | Finish


@dataclasses.dataclass(slots=True)
class StageContext:
    """One claimed stage. Stages raise ClaimLost, PoolBusy, NoWorker, StageFailed, and the stores' errors."""

    job: Job
    claim: Claim
    calls: Calls
    jobs: JobStore
    pool: Pool
    store: CacheStore
    settings: Settings
    worker_id: str = ""
    _told: float = 0.0

    def use(self, record: WorkerRecord, *, reserved: bool = True) -> WorkerRecord:
        """Notes which worker the stage runs on; the claim renews its reservation from now on."""
        self.worker_id = record.id
        if reserved:
            self.claim.worker_id = record.id
        return record

    def progress(self, fraction: float, phase: str = "") -> None:
        """Tells how far the stage, or a phase of it, is, 0 to 1, at most five times a second."""
        now = time.monotonic()
        if now - self._told >= _PROGRESS_SECONDS or fraction >= 1.0:
            self._told = now
            data = {**place(self.job), "fraction": round(fraction, 3)} | ({"stage": phase} if phase else {})
            self.jobs.emit(self.job, self.claim.token, "progress", data)

    def plan(self) -> StatePlan:
        """The plan of the job's states; positions and fingerprint as far as they are known."""
        return plan_of(self.job)

    def state_unless_gone(self) -> tuple[Manifest | None, StateMeta | None]:
        """What is known of the job's state; nothing where it is gone and the text can do without it. Raises
        StageFailed (back to ingest) where it cannot."""
        try:
            return self.stored_state(self.job.state)
        except StageFailed:
            if self.job.can_do_without_state:
                return None, None
            raise

    def stored_state(self, name: str) -> tuple[Manifest, StateMeta]:
        """What is known of a stored state. Raises StageFailed (back to ingest) when it is gone or damaged."""
        try:
            manifest = self.store.manifest("state", name)
            return manifest, state_meta(manifest)
        except (ObjectMissing, ObjectDamaged) as error:
            raise StageFailed(str(error), Remedy.INGEST) from error
        except ValueError as error:
            self.store.delete("state", name)
            raise StageFailed(f"state {name} does not describe a state", Remedy.INGEST) from error


def beginning(job: Job) -> dict[str, Any]:
    """Where a job is when it is claimed: a decode that reads again begins with that."""
    return place(job) | ({"stage": REREAD} if job.stage == "decode" and job.passages else {})


def plan_of(job: Job) -> StatePlan:
    """The plan of a job's states; positions and fingerprint as far as they are known."""
    options = job.options
    return StatePlan(
        model_fingerprint=job.model_fingerprint,
        policy=options.policy,
        cache_entries=options.cache_entries,
        segment_tokens=options.segment_tokens,
        seed=job.plan_seed,
        positions=job.positions or options.positions,
        parameters=dict(options.policy_parameters),
    )


def place(job: Job) -> dict[str, Any]:
    """Where a job is, as events tell it."""
    return {"stage": job.stage, "segment": job.segment, "segments": job.segments}
