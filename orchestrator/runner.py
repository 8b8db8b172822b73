"""Runs one delivery of a stage: claims it, works on it, records what came of it."""

from __future__ import annotations

import dataclasses
import logging
import time
import uuid
from collections.abc import Mapping

from cache_store.errors import BudgetExceeded, StoreError
from cache_store.log_format import about
from cache_store.store import CacheStore
from orchestrator.calls import Calls, release_lease
from orchestrator.channels import Channels
from orchestrator.claim import Claim
from orchestrator.dispatch import Dispatcher
from orchestrator.errors import ClaimLost, JobStoreUnavailable, NoWorker, PoolBusy, UnknownJob
from orchestrator.job_store import JobStore, Move
from orchestrator.jobs import Job
from orchestrator.messages import StageMessage
from orchestrator.pool import Pool
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.settings import Settings
from orchestrator.stages import STAGE_FUNCTIONS, Finish, Outcome, StageContext
from orchestrator.stages.context import beginning
from orchestrator.stores import Stores
from orchestrator.telemetry import counts

_log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class _Step:
    """What is left to do after a stage: the message to send, and whether the worker stays reserved for it."""

    message: StageMessage | None = None
    hold: bool = False


class Runner:
    """Runs deliveries, several at once in their own threads. Raises nothing on purpose: while the job store
    is away nothing can be recorded, the claim lapses, and the reaper has the stage done again."""

    def __init__(
        self,
        jobs: JobStore,
        pool: Pool,
        channels: Channels,
        stores: Stores,
        dispatcher: Dispatcher,
        settings: Settings,
    ) -> None:
        self._jobs = jobs
        self._pool = pool
        self._channels = channels
        self._stores = stores
        self._dispatcher = dispatcher
        self._settings = settings

    def run(self, message: StageMessage) -> None:
        """Does the stage unless somebody else does it, has done it, or the job has moved on or ended."""
        with about(job=message.job, stage=message.stage, segment=message.segment):
            try:
                self._run(message)
            except UnknownJob as error:
                _log.warning("a message is dropped: %s", error)
            except JobStoreUnavailable as error:
                _log.error("job %s: %s %d is left: %s", message.job, message.stage, message.segment, error)

    def _run(self, message: StageMessage) -> None:
        job = self._jobs.load(message.tenant, message.job)
        token = uuid.uuid4().hex
        if StageMessage.of(job) != message or not self._claim(job, token):
            _log.info("job %s: %s %d is not to be done", job.id, message.stage, message.segment)
            if job.status == "cancelled":
                self._release_lease(job.worker, job.lease)
                self._pool.forget(job)
                self._dispatcher.wake()
            return
        job = dataclasses.replace(job, claim=token)
        with Claim(self._jobs, job, token, self._settings) as claim:
            self._work(self._context(job, claim))

    def _claim(self, job: Job, token: str) -> bool:
        if job.claim:
            return False
        fields = {"status": job.stage, "parked": False}
        return self._jobs.move(job, Move(fields, [("stage", beginning(job))], claim=token))

    def _context(self, job: Job, claim: Claim) -> StageContext:
        return StageContext(
            job=job,
            claim=claim,
            calls=Calls(self._channels, claim, job.stage),
            jobs=self._jobs,
            pool=self._pool,
            store=self._stores.of(job.tenant),
            settings=self._settings,
        )

    def _work(self, context: StageContext) -> None:
        job = context.job
        step = _Step()
        try:
            step = self._step(context)
        except ClaimLost:
            _log.info("job %s: %s %d stopped: cancelled or taken over", job.id, job.stage, job.segment)
            self._release_lease(job.worker, job.lease)
        except (PoolBusy, NoWorker) as reason:
            self._dispatcher.park(job, reason)
        finally:
            if context.worker_id and not step.hold:
                self._pool.release(job, context.worker_id)
                self._dispatcher.wake()
        if step.message is not None:
            self._dispatcher.send(step.message)

    def _step(self, context: StageContext) -> _Step:
        """Does the stage and records what came of it. Raises ClaimLost, PoolBusy, NoWorker."""
        started = time.monotonic()
        try:
            outcome = self._try(context)
            return self._record(context, outcome, time.monotonic() - started)
        except StageFailed as failed:
            return self._repair(context, failed)

    def _try(self, context: StageContext) -> Outcome:
        """The stage's outcome; whatever else goes wrong in it becomes a StageFailed."""
        job = context.job
        try:
            return STAGE_FUNCTIONS[job.stage](context)
        except (ClaimLost, PoolBusy, NoWorker, StageFailed, JobStoreUnavailable):
            raise
        except BudgetExceeded as error:
            raise StageFailed(str(error), Remedy.FAIL) from error
        except StoreError as error:
            raise StageFailed(str(error), Remedy.SAME) from error
        except Exception as error:
            _log.exception("job %s: %s %d failed unexpectedly", job.id, job.stage, job.segment)
            raise StageFailed(
                f"{job.stage} failed unexpectedly: {type(error).__name__}", Remedy.SAME
            ) from error

    def _record(self, context: StageContext, outcome: Outcome, elapsed: float) -> _Step:
        """Writes the outcome, then clears away what it supersedes."""
        if isinstance(outcome, Finish):
            return self._finish(context, outcome, elapsed)
        fields = {**outcome.fields, "seconds": _add(context.job, elapsed)}
        if outcome.progress:
            fields["failures"] = 0
        counted = counts.of_stage(context.job, outcome.fields, outcome.segment, elapsed)
        message = self._dispatcher.advance(context.job, outcome.stage, outcome.segment, fields, counted)
        if message is None:
            self._release_lease(context.worker_id, outcome.fields.get("lease", ""))
            return _Step()
        _clear(context.store, outcome.superseded)
        return _Step(message, outcome.hold)

    def _finish(self, context: StageContext, outcome: Finish, elapsed: float) -> _Step:
        stage = context.job.stage
        seconds = _told_apart(_add(context.job, elapsed), stage, outcome.apart)
        result = dataclasses.replace(outcome.result, seconds=seconds).to_json()
        fields = {"status": "done", "result": result, "seconds": seconds, "reason": ""}
        counted = counts.of_last(context.job, outcome.result, elapsed, outcome.apart)
        move = Move(fields, [("done", {"result": result})], final=True, counts=counted)
        if self._jobs.move(context.job, move):
            _clear(context.store, outcome.superseded)
        return _Step()

    def _repair(self, context: StageContext, failed: StageFailed) -> _Step:
        """Applies the remedy of a failed stage."""
        job = context.job
        _log.warning("job %s: %s %d: %s", job.id, job.stage, job.segment, failed)
        if failed.remedy is Remedy.WAIT:
            self._dispatcher.park(job, failed, pause=self._settings.busy_pause)
            return _Step(hold=job.stage == "compress")
        if failed.avoid and context.worker_id:
            self._pool.suspend(context.worker_id)
        elif failed.remedy is not Remedy.SAME:
            self._release_lease(job.worker, job.lease)
        return _Step(self._dispatcher.retry(job, failed))

    def _release_lease(self, worker_id: str, lease: str) -> None:
        record = self._pool.find(worker_id) if lease else None
        if record is not None:
            release_lease(self._channels, record, lease, deadline=self._settings.release_deadline)


def _clear(store: CacheStore, superseded: str) -> None:
    """Deletes a state that nothing needs any more. One that stays behind is no failure: it expires."""
    try:
        if superseded:
            store.delete_superseded("state", superseded)
    except StoreError as error:
        _log.warning("superseded state %s was not deleted: %s", superseded, error)


def _told_apart(seconds: dict[str, float], stage: str, apart: Mapping[str, float]) -> dict[str, float]:
    """The seconds with a part of the stage's under other names, before it."""
    rest = max(0.0, seconds[stage] - sum(apart.values()))
    others = {name: value for name, value in seconds.items() if name != stage}
    return others | {name: round(value, 3) for name, value in apart.items()} | {stage: round(rest, 3)}


def _add(job: Job, elapsed: float) -> dict[str, float]:
    """The job's seconds by stage, with those of the present one added."""
    seconds = dict(job.seconds)
    seconds[job.stage] = round(seconds.get(job.stage, 0.0) + elapsed, 3)
    return seconds
