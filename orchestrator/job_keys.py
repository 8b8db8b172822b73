"""Every key of the job store, built in one place; those of a tenant begin as the cache store's do."""

from __future__ import annotations

import re
from dataclasses import dataclass

from cache_store.keys import ROOT, check_tenant
from orchestrator.errors import UnknownJob
from orchestrator.jobs import Room

JOB_ID_PATTERN = "[a-z0-9]{1,64}"
CELERY_PREFIX = f"{ROOT}:celery:"
# Sorted sets of "{tenant}/{job id}" over all tenants: unfinished jobs, and those that wait for a worker.
ACTIVE = f"{ROOT}:orchestrator:active"
PARKED = f"{ROOT}:orchestrator:parked"
# Hash: what was counted, see `telemetry/counts.py`. Set: every tenant that ever had a job.
COUNTS = f"{ROOT}:orchestrator:counts"
TENANTS = f"{ROOT}:orchestrator:tenants"
REAPER_LOCK = f"{ROOT}:orchestrator:reaper"
# Sorted set: "host:pid" of an orchestrator that consumes -> Unix time in seconds at which that lapses.
PROCESSES = f"{ROOT}:orchestrator:processes"


def reservations(worker_id: str, room: Room) -> str:
    """Sorted set: "{tenant}/{job id}" -> Unix time in seconds at which the reservation lapses."""
    return f"{ROOT}:orchestrator:reservations:{worker_id}:{room}"


def suspended(worker_id: str) -> str:
    """String: the expiry (Unix ms) of the worker's registration when a call to it failed."""
    return f"{ROOT}:orchestrator:suspended:{worker_id}"


def jobs(tenant: str) -> str:
    """Sorted set: job id -> creation time in seconds."""
    return f"{ROOT}:{check_tenant(tenant)}:jobs"


@dataclass(frozen=True, slots=True)
class JobKeys:
    """The keys of one job. Raises UnknownJob for an id that no job can have."""

    tenant: str
    job_id: str

    def __post_init__(self) -> None:
        check_tenant(self.tenant)
        if not re.fullmatch(JOB_ID_PATTERN, self.job_id):
            raise UnknownJob(self.job_id[:80])

    @property
    def member(self) -> str:
        return f"{self.tenant}/{self.job_id}"

    @property
    def record(self) -> str:
        """Hash: field -> JSON value."""
        return f"{ROOT}:{self.tenant}:job:{self.job_id}"

    @property
    def claim(self) -> str:
        """String with a short life, renewed by the task that works on the job's stage."""
        return f"{self.record}:claim"

    @property
    def events(self) -> str:
        """Stream of {kind, data}."""
        return f"{self.record}:events"

    @property
    def tokens(self) -> str:
        """List: the text of each written token, by index."""
        return f"{self.record}:tokens"


def split_member(member: str) -> JobKeys:
    tenant, _, job_id = member.partition("/")
    return JobKeys(tenant, job_id)
