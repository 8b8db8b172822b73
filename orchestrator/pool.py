"""The pool of kernel workers: who is there, who has room, and who is not to be trusted for the moment.

Workers announce themselves in Redis with a record that lapses (`cache_store.worker_registry`). What each of
them works on stands in a sorted set of reservations, which lapse too unless a task's claim renews them; so
several orchestrators share the same workers, and one that dies leaves nothing behind.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import redis

from cache_store.worker_registry import WORKER_PREFIX, WorkerRecord, alive
from orchestrator import job_keys, scripts
from orchestrator.connection import job_store_errors
from orchestrator.errors import NoWorker, PoolBusy
from orchestrator.job_keys import JobKeys
from orchestrator.jobs import ROOMS, Job, Room
from orchestrator.settings import Settings


@dataclasses.dataclass(frozen=True, slots=True)
class Member:
    """A registered worker: its record, how many jobs have reserved it, and whether it may be given work."""

    record: WorkerRecord
    reserved: Mapping[Room, int]
    trusted: bool

    @property
    def open(self) -> bool:
        """Whether it takes work at all."""
        return self.trusted and not self.record.draining

    def free(self, room: Room) -> int:
        """How many jobs more it may be given now."""
        return max(0, capacity(self.record, room) - self.reserved[room]) if self.open else 0

    def suits(self, job: Job) -> bool:
        """Whether it has the job's model: the very fingerprint once ingest has fixed it, a name before."""
        if job.model_fingerprint:
            return self.record.model_fingerprint == job.model_fingerprint
        return job.options.model in (self.record.model_name, self.record.model_fingerprint)


class Pool:
    """Raises JobStoreUnavailable. Safe to share between threads."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self._client = client
        self._settings = settings
        self._reserve = client.register_script(scripts.RESERVE)

    def members(self) -> list[Member]:
        """All registered workers, in the order of their ids."""
        with job_store_errors(self._client):
            records = alive(self._client)
            now = self._client.time()[0]
            with self._client.pipeline(transaction=False) as pipe:
                for record in records:
                    for room in ROOMS:
                        pipe.zcount(job_keys.reservations(record.id, room), f"({now}", "+inf")
                    pipe.get(job_keys.suspended(record.id))
                    pipe.pexpiretime(WORKER_PREFIX + record.id)
                answers = iter(pipe.execute())
        members = []
        for record in records:
            reserved = {room: next(answers) for room in ROOMS}
            mistrust, expiry = next(answers), next(answers)
            members.append(Member(record, reserved, mistrust is None or expiry > int(mistrust)))
        return members

    def find(self, worker_id: str) -> WorkerRecord | None:
        """A worker, draining or not; None if it is registered no longer."""
        return next((m.record for m in self.members() if m.record.id == worker_id), None)

    def pick(self, job: Job) -> WorkerRecord:
        """The least loaded worker that suits, with room or not, and without a reservation.

        For calls that do not compute. Raises NoWorker, PoolBusy (none answers).
        """
        candidates = [member for member in self._suitable(job) if member.open]
        if not candidates:
            raise PoolBusy(f"no worker with the model {job.options.model} answers at the moment")
        return min(candidates, key=lambda m: m.reserved["calls"] / m.record.capacity).record

    def reserve(self, job: Job) -> WorkerRecord:
        """Reserves the least loaded worker that suits and has room; among equals one that reads nothing, the
        last one, one that has the job's state at hand. Raises NoWorker, PoolBusy."""
        suitable = [member for member in self._suitable(job) if member.open]
        suitable.sort(
            key=lambda m: (
                not m.free("calls"),
                m.record.id != job.worker,
                job.state not in m.record.hot_states,
            )
        )
        candidates = [member.record for member in suitable]
        number = self._run_reserve(job, candidates, [capacity(record, job.room) for record in candidates])
        if number == 0:
            raise PoolBusy(f"all workers with the model {job.options.model} are busy")
        return candidates[number - 1]

    def hold(self, job: Job, record: WorkerRecord) -> None:
        """Reserves this very worker for the job, room or not: it holds the job's lease."""
        self._run_reserve(job, [record], [2**31])

    def release(self, job: Job, worker_id: str) -> None:
        """Gives up the job's reservation of a worker, if there is one."""
        with job_store_errors(self._client):
            self._client.zrem(job_keys.reservations(worker_id, job.room), JobKeys(job.tenant, job.id).member)

    def forget(self, job: Job) -> None:
        """Gives up whatever the job has reserved: one that has ended, while it waited to be begun."""
        with job_store_errors(self._client), self._client.pipeline(transaction=False) as pipe:
            for record in alive(self._client):
                for room in ROOMS:
                    pipe.zrem(job_keys.reservations(record.id, room), JobKeys(job.tenant, job.id).member)
            pipe.execute()

    def suspend(self, worker_id: str) -> None:
        """Gives a worker no more work until it has renewed its registration after this moment."""
        with job_store_errors(self._client):
            expiry = self._client.pexpiretime(WORKER_PREFIX + worker_id)
            if expiry > 0:
                self._client.set(job_keys.suspended(worker_id), expiry, pxat=expiry)

    def _run_reserve(self, job: Job, records: Sequence[WorkerRecord], capacities: Sequence[int]) -> int:
        keys = [job_keys.reservations(record.id, job.room) for record in records]
        if not keys:
            return 0
        member = JobKeys(job.tenant, job.id).member
        arguments: list[Any] = [member, self._settings.reservation_ttl, *capacities]
        with job_store_errors(self._client):
            return int(self._reserve(keys=keys, args=arguments))

    def _suitable(self, job: Job) -> list[Member]:
        members = self.members()
        suitable = [member for member in members if member.suits(job)]
        if not suitable:
            raise NoWorker(missing(job, members))
        return suitable


def missing(job: Job, members: Sequence[Member]) -> str:
    """A sentence that names the model that no worker has, and what is registered."""
    names = sorted({member.record.model_name for member in members})
    there = f"registered are workers with {', '.join(names)}" if names else "no worker is registered at all"
    return f"no worker with the model {job.options.model} is registered ({there})"


def capacity(record: WorkerRecord, room: Room) -> int:
    """How many jobs a worker has room for at once."""
    return record.decode_rows if room == "rows" else record.capacity


Take = Callable[[Job], bool]


def rooms(members: Sequence[Member]) -> Take:
    """A function that says whether there is room for one job more, and takes that room."""
    free = {(member.record.id, room): member.free(room) for member in members for room in ROOMS}

    def take(job: Job) -> bool:
        for member in members:
            if member.suits(job) and free[member.record.id, job.room] > 0:
                free[member.record.id, job.room] -= 1
                return True
        return False

    return take
