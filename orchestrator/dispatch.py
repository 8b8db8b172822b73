"""Moves jobs on: to the next stage, into the waiting room and out of it, back for another try, to the end."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence
from typing import Any

from orchestrator.errors import NoWorker, PoolBusy
from orchestrator.event_stream import failure
from orchestrator.job_store import JobStore, Move
from orchestrator.jobs import Job, Stage
from orchestrator.messages import Sender, StageMessage
from orchestrator.pool import Member, Pool, Take, missing, rooms
from orchestrator.records import NOW
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.settings import Settings
from orchestrator.telemetry.counts import Counts, of_retry

_log = logging.getLogger(__name__)


class Dispatcher:
    """Every step is a transition that happens once, whoever else tries it at the same time.

    `advance` and `retry` return the message to send next and leave the sending to the caller, who gives the
    worker up first: so a job that has waited longer gets it, and the reservation that is given up cannot be
    the next stage's. A message that is never sent is found missing by the reaper.
    """

    def __init__(self, jobs: JobStore, pool: Pool, sender: Sender, settings: Settings) -> None:
        self._jobs = jobs
        self._pool = pool
        self._sender = sender
        self._settings = settings

    def park(self, job: Job, reason: Exception, *, pause: float = 0.0) -> None:
        """Lets a claimed job wait for a worker, at least `pause` seconds. Does not count as a failed try."""
        missing_since = (job.missing_since or time.time()) if isinstance(reason, NoWorker) else 0.0
        fields = {"parked": True, "not_before": time.time() + pause, "missing_since": missing_since}
        event = ("waiting", {"stage": job.stage, "reason": str(reason)})
        self._jobs.move(job, Move(fields, [event], park="in"))

    def wake(self) -> None:
        """Sends on the parked jobs that can go on now, those first that have waited longest, and gives up
        those whose model has been missing for too long.

        Their worker is reserved for them here: else a job that has just given it up would be quicker to take
        it again, and the others would wait for ever.
        """
        parked = self._jobs.parked()
        if not parked:
            return
        members = self._pool.members()
        take = rooms(members)
        for job in parked:
            if job.stage != "compress" and not any(member.suits(job) for member in members):
                self._miss(job, members)
            elif time.time() >= job.not_before and _can_go(job, members, take):
                self.resend(job, reserve=job.stage in ("prefill", "decode"))

    def resend(self, job: Job, *, reserve: bool = False) -> None:
        """Puts a job that nobody works on back into its queue; the same place, so no new try."""
        if self._jobs.move(job, Move({"parked": False, "missing_since": 0.0, "queued": NOW})):
            if reserve:
                self._try_to_reserve(job)
            self._sender.send(StageMessage.of(job))

    def send(self, message: StageMessage) -> None:
        self._sender.send(message)

    def advance(
        self, job: Job, stage: Stage, segment: int, fields: dict[str, Any], counts: Counts
    ) -> StageMessage | None:
        """Moves a claimed job to another place; the message to send, None if the job is ours no longer."""
        to = {**_place(job, stage, segment), "parked": False, "missing_since": 0.0}
        moved = self._jobs.move(job, Move({**to, **fields}, counts=counts))
        return _message(job, stage, segment) if moved else None

    def retry(self, job: Job, failed: StageFailed, *, dead: bool = False) -> StageMessage | None:
        """Applies the remedy of a failed stage; `dead` if the task that had claimed the job is gone.

        Tries are counted from the last progress; the second is made at once, later ones after a pause.
        Returns the message to send; None if the job waits, has failed, or is no longer where `job` says.
        """
        if failed.remedy is Remedy.FAIL:
            self.fail(job, str(failed), retryable=failed.retryable, invalid=failed.invalid, dead=dead)
            return None
        tokens = self._jobs.token_count(job)
        failures = 1 if tokens > job.best_tokens else job.failures + 1
        if failures >= self._settings.max_attempts:
            reason = f"{job.stage} failed {failures} times without progress, at last: {failed}"
            self.fail(job, reason, retryable=True, dead=dead)
            return None
        stage, segment = _after(failed.remedy, job)
        pause = self._pause(failures)
        fields = {
            **_place(job, stage, segment),
            "failures": failures,
            "best_tokens": max(tokens, job.best_tokens),
            "reason": str(failed),
            "lease": job.lease if stage == "compress" else "",
            "parked": pause > 0,
            "not_before": time.time() + pause,
        }
        told = {"stage": stage, "segment": segment, "attempt": failures + 1, "reason": str(failed)}
        counts = of_retry(job.stage, lease_lost=failed.remedy is Remedy.PREFILL, lapsed=dead)
        move = Move(fields, [("retry", told)], park="in" if pause else "out", dead=dead, counts=counts)
        moved = self._jobs.move(job, move)
        return _message(job, stage, segment) if moved and not pause else None

    def fail(
        self, job: Job, reason: str, *, retryable: bool, invalid: bool = False, dead: bool = False
    ) -> None:
        """Ends a job as failed, unless it is no longer where `job` says."""
        fields = {"status": "failed", "reason": reason, "retryable": retryable, "invalid": invalid}
        event = ("failed", failure(reason, retryable, invalid))
        self._jobs.move(job, Move(fields, [event], dead=dead, final=True))

    def _miss(self, job: Job, members: Sequence[Member]) -> None:
        now = time.time()
        if not job.missing_since:
            self._jobs.move(job, Move({"missing_since": now}, park="stay"))
        elif now - job.missing_since > self._settings.worker_wait_seconds:
            waited = f"{missing(job, members)}, and none came within {now - job.missing_since:.0f} s"
            self.fail(job, waited, retryable=True)

    def _try_to_reserve(self, job: Job) -> None:
        try:
            self._pool.reserve(job)
        except (PoolBusy, NoWorker) as error:
            _log.info("job %s finds no room after all: %s", job.id, error)

    def _pause(self, failures: int) -> float:
        if failures < 2:
            return 0.0
        return min(self._settings.retry_backoff * 2.0 ** (failures - 2), self._settings.retry_backoff_limit)


def _place(job: Job, stage: Stage, segment: int) -> dict[str, Any]:
    """The fields that say where a job is once it has moved on."""
    return {"stage": stage, "segment": segment, "status": stage, "attempt": job.attempt + 1, "queued": NOW}


def _message(job: Job, stage: Stage, segment: int) -> StageMessage:
    """The message of a place to which the job has just been moved."""
    return StageMessage(job.id, job.tenant, stage, segment, job.attempt + 1)


def _after(remedy: Remedy, job: Job) -> tuple[Stage, int]:
    if remedy is Remedy.PREFILL:
        return "prefill", job.segment
    if remedy is Remedy.INGEST:
        return "ingest", 0
    return job.stage, job.segment


def _can_go(job: Job, members: Sequence[Member], take: Take) -> bool:
    """Whether a parked job finds what it waits for. A compress has its worker, or finds it gone."""
    if job.stage == "compress":
        return True
    if job.stage in ("ingest", "rank"):
        return any(member.suits(job) and member.open for member in members)
    return take(job)
