"""What travels through Celery: where a job stands, never what is in it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Protocol

from orchestrator.jobs import Job, Stage

TASK_NAME = "docexpress.stage"
QUEUES = ("prefill", "compress", "decode")
# Ingest and rank are short, and have no pools of their own.
QUEUE_OF: Mapping[Stage, str] = {
    "ingest": "prefill",
    "prefill": "prefill",
    "compress": "compress",
    "rank": "decode",
    "decode": "decode",
}


@dataclasses.dataclass(frozen=True, slots=True)
class StageMessage:
    """One delivery of a stage of a job."""

    job: str
    tenant: str
    stage: Stage
    segment: int
    attempt: int

    @classmethod
    def of(cls, job: Job) -> StageMessage:
        """The message for the place where the job stands."""
        return cls(job.id, job.tenant, job.stage, job.segment, job.attempt)


class Sender(Protocol):
    """Puts messages into the queue of their stage."""

    def send(self, message: StageMessage) -> None: ...
