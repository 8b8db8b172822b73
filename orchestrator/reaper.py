"""Finds the stages that nobody works on any more, and has them done again.

Several orchestrators run one each; a lock in Redis lets one of them act at a time, and its transitions hold
even if two should.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping, Sequence

import redis

from orchestrator import job_keys, scripts
from orchestrator.connection import job_store_errors
from orchestrator.dispatch import Dispatcher
from orchestrator.job_store import JobStore
from orchestrator.jobs import Job
from orchestrator.messages import QUEUE_OF, QUEUES
from orchestrator.remedies import Remedy, StageFailed
from orchestrator.settings import Settings

# While other messages stand in the queue, one that takes long is probably among them.
_PATIENCE = 12


@dataclasses.dataclass(slots=True)
class Reaper:
    """`tick` is to be called every `reaper_interval` seconds. Raises JobStoreUnavailable."""

    client: redis.Redis
    jobs: JobStore
    dispatcher: Dispatcher
    settings: Settings
    owner: str

    def tick(self) -> bool:
        """One round over all unfinished jobs; False if another orchestrator's reaper is at it."""
        life = int(max(3.0, 4 * self.settings.reaper_interval) * 1000)
        with job_store_errors(self.client):
            if not self.client.eval(scripts.LOCK, 1, job_keys.REAPER_LOCK, self.owner, life):
                return False
        waiting = queue_lengths(self.client)
        active = self.jobs.active()
        for job, lives in zip(active, self._claims(active), strict=True):
            if job.claim and not lives:
                stopped = StageFailed("the orchestrator that worked on it stopped", Remedy.SAME)
                message = self.dispatcher.retry(job, stopped, dead=True)
                if message is not None:
                    self.dispatcher.send(message)
            elif not job.claim and not job.parked and self._is_lost(job, waiting):
                self.dispatcher.resend(job)
        self.dispatcher.wake()
        return True

    def release(self) -> None:
        """Lets another reaper begin at once."""
        with job_store_errors(self.client):
            self.client.eval(scripts.UNLOCK, 1, job_keys.REAPER_LOCK, self.owner)

    def _claims(self, jobs: Sequence[Job]) -> list[bool]:
        with job_store_errors(self.client), self.client.pipeline(transaction=False) as pipe:
            for job in jobs:
                pipe.exists(job_keys.JobKeys(job.tenant, job.id).claim)
            return [bool(answer) for answer in pipe.execute()]

    def _is_lost(self, job: Job, waiting: Mapping[str, int]) -> bool:
        """Whether the job's message has probably been lost. Sending it once more does no harm."""
        limit = self.settings.lost_message_seconds
        if waiting[QUEUE_OF[job.stage]]:
            limit *= _PATIENCE
        return time.time() - max(job.queued, job.created) > limit


def queue_lengths(client: redis.Redis, queues: Sequence[str] = QUEUES) -> Mapping[str, int]:
    """How many messages stand in each queue. Raises JobStoreUnavailable."""
    with job_store_errors(client), client.pipeline(transaction=False) as pipe:
        for queue in queues:
            pipe.llen(job_keys.CELERY_PREFIX + queue)
        return dict(zip(queues, pipe.execute(), strict=True))
