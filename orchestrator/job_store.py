"""Jobs in Redis: created once, moved from state to state by atomic transitions, never half-way.

A job's place is (stage, segment, attempt). Who works on a stage holds its claim: a token in the record, and
a key of its own that lapses unless it is renewed. Every write of a task depends on its claim, so a task that
was taken for dead writes nothing any more.
"""

from __future__ import annotations

import dataclasses
import json
import logging
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal

import redis

from orchestrator import job_keys, records, scripts
from orchestrator.connection import job_store_errors
from orchestrator.errors import ClaimLost, OptionError, UnknownJob
from orchestrator.job_keys import JobKeys
from orchestrator.jobs import Job
from orchestrator.settings import Settings
from orchestrator.telemetry.counts import ENDED, SUBMITTED, Counts, of_end, of_token

_log = logging.getLogger(__name__)

Park = Literal["in", "out", "stay"]
EventData = tuple[str, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True, slots=True)
class Move:
    """One transition: the fields to write, the events to tell, what to count, and what becomes of the claim.

    `claim` is the token to set, "" for none; `dead` demands that the present claim is no longer renewed;
    `final` marks a transition to a terminal status, after which the job's keys begin to expire.
    """

    fields: Mapping[str, Any]
    events: Sequence[EventData] = ()
    claim: str = ""
    park: Park = "out"
    dead: bool = False
    final: bool = False
    counts: Counts = dataclasses.field(default_factory=dict)


class JobStore:
    """All tenants' jobs on one Redis. Raises JobStoreUnavailable; safe to share between threads."""

    def __init__(self, client: redis.Redis, settings: Settings) -> None:
        self.client: Any = client  # its types leave open whether replies are text; ours are bytes
        self._settings = settings
        self._transition = client.register_script(scripts.TRANSITION)
        self._cancel = client.register_script(scripts.CANCEL)
        self._remove = client.register_script(scripts.REMOVE)
        self._beat = client.register_script(scripts.BEAT)
        self._emit = client.register_script(scripts.EMIT)
        self._token = client.register_script(scripts.WRITE_PIECE)

    def create(self, job: Job) -> None:
        """Writes a new job and lists it, all at once."""
        keys = JobKeys(job.tenant, job.id)
        with job_store_errors(self.client), self.client.pipeline(transaction=True) as pipe:
            pipe.hset(keys.record, mapping=records.encode_job(job))
            pipe.zadd(job_keys.jobs(job.tenant), {job.id: job.created})
            pipe.zadd(job_keys.ACTIVE, {keys.member: job.created})
            pipe.sadd(job_keys.TENANTS, job.tenant)
            pipe.hincrby(job_keys.COUNTS, SUBMITTED.field(job.kind), 1)
            pipe.execute()

    def load(self, tenant: str, job_id: str) -> Job:
        """Raises UnknownJob."""
        with job_store_errors(self.client):
            record = self.client.hgetall(JobKeys(tenant, job_id).record)
        if not record:
            raise UnknownJob(job_id)
        return records.decode(record)

    def load_many(self, members: Iterable[JobKeys]) -> list[Job]:
        """The jobs that exist, in the order given, in one round trip.

        A record that cannot be read is left out: it must not stand in the way of all the others.
        """
        with job_store_errors(self.client), self.client.pipeline(transaction=False) as pipe:
            for keys in members:
                pipe.hgetall(keys.record)
            found = pipe.execute()
        return [job for record in found if record and (job := _readable(record)) is not None]

    def all(self, tenant: str) -> list[Job]:
        """All jobs of a tenant, the newest first; those that have expired leave the list."""
        index = job_keys.jobs(tenant)
        with job_store_errors(self.client):
            ids = [name.decode() for name in self.client.zrevrange(index, 0, -1)]
            jobs = self.load_many(JobKeys(tenant, job_id) for job_id in ids)
            gone = set(ids) - {job.id for job in jobs}
            if gone:
                self.client.zrem(index, *gone)
        return jobs

    def active(self) -> list[Job]:
        """The unfinished jobs of all tenants."""
        return self._members(job_keys.ACTIVE)

    def unfinished(self, tenant: str) -> tuple[int, int]:
        """How many jobs have not ended: of a tenant, and of all."""
        with job_store_errors(self.client):
            members: list[bytes] = self.client.zrange(job_keys.ACTIVE, 0, -1)
        own = f"{tenant}/".encode()
        return sum(member.startswith(own) for member in members), len(members)

    def parked(self) -> list[Job]:
        """The jobs that wait for a worker, those first that have waited longest."""
        return self._members(job_keys.PARKED)

    def move(self, job: Job, move: Move) -> bool:
        """Makes a transition if the job's place and claim still are those of `job`; False if they are not."""
        keys = JobKeys(job.tenant, job.id)
        place = [job.stage, job.segment, job.attempt, job.claim]
        fields = [part for pair in records.encode(move.fields).items() for part in pair]
        events = [part for kind, data in move.events for part in (kind, records.encode_value(data))]
        counted = {**move.counts}
        if move.final:
            counted |= of_end(job, move.fields["status"], time.time())
        arguments: list[Any] = [
            *map(records.encode_value, place),
            "dead" if move.dead else "",
            move.claim,
            int(self._settings.claim_ttl * 1000),
            keys.member,
            move.park,
            self._settings.event_stream_length,
            self._settings.job_ttl_seconds if move.final else "",
            len(fields) // 2,
            json.dumps(counted),
            *fields,
            *events,
        ]
        with job_store_errors(self.client):
            return int(self._transition(keys=_all_keys(keys), args=arguments)) == 1

    def cancel(self, tenant: str, job_id: str) -> bool:
        """False if the job had finished already. Raises UnknownJob."""
        keys = JobKeys(tenant, job_id)
        arguments: list[Any] = [keys.member, self._settings.job_ttl_seconds, ENDED.field("cancelled", "")]
        with job_store_errors(self.client):
            done = int(self._cancel(keys=_all_keys(keys), args=arguments))
        if done < 0:
            raise UnknownJob(job_id)
        return done == 1

    def remove(self, tenant: str, job_id: str) -> bool:
        """Deletes all that there is of a finished job; False if it is not finished, or not there."""
        keys = JobKeys(tenant, job_id)
        written = [keys.record, keys.claim, keys.events, keys.tokens, job_keys.jobs(tenant)]
        with job_store_errors(self.client):
            return int(self._remove(keys=written, args=[job_id])) == 1

    def beat(self, job: Job, claim: str, worker_id: str | None) -> bool:
        """Renews a claim, and with it the reservation of a worker; False if the claim is no longer ours."""
        keys = JobKeys(job.tenant, job.id)
        watched = [keys.record, keys.claim]
        if worker_id is not None:
            watched.append(job_keys.reservations(worker_id, job.room))
        life = int(self._settings.claim_ttl * 1000)
        arguments: list[Any] = [json.dumps(claim), claim, life, keys.member, self._settings.reservation_ttl]
        with job_store_errors(self.client):
            return int(self._beat(keys=watched, args=arguments)) == 1

    def emit(self, job: Job, claim: str, kind: str, data: Mapping[str, Any]) -> None:
        """Tells an event. Raises ClaimLost."""
        keys = JobKeys(job.tenant, job.id)
        arguments: list[Any] = [
            json.dumps(claim),
            kind,
            records.encode_value(data),
            self._settings.event_stream_length,
        ]
        with job_store_errors(self.client):
            if int(self._emit(keys=[keys.record, keys.events], args=arguments)) == 0:
                raise ClaimLost(f"job {job.id} is no longer this task's")

    def token(self, job: Job, claim: str, index: int, text: str) -> None:
        """Writes a token and tells it, once: a token that is there already changes nothing.

        Raises ClaimLost; ValueError when tokens before it are missing.
        """
        keys = JobKeys(job.tenant, job.id)
        data = records.encode_value({"index": index, "text": text})
        counted = json.dumps(of_token(job, index, time.time()))
        length = self._settings.event_stream_length
        arguments: list[Any] = [json.dumps(claim), index, text, data, length, counted]
        written = [keys.record, keys.events, keys.tokens, job_keys.COUNTS]
        with job_store_errors(self.client):
            done = int(self._token(keys=written, args=arguments))
        if done == 0:
            raise ClaimLost(f"job {job.id} is no longer this task's")
        if done < 0:
            raise ValueError(f"token {index} came before those that precede it")

    def token_count(self, job: Job) -> int:
        with job_store_errors(self.client):
            return int(self.client.llen(JobKeys(job.tenant, job.id).tokens))

    def token_texts(self, tenant: str, job_id: str, first: int = 0, last: int = -1) -> list[str]:
        """The texts of tokens first..last, both included; -1 is the last one written."""
        with job_store_errors(self.client):
            texts = self.client.lrange(JobKeys(tenant, job_id).tokens, first, last)
        return [text.decode() for text in texts]

    def _members(self, key: str) -> list[Job]:
        with job_store_errors(self.client):
            members = self.client.zrange(key, 0, -1)
            return self.load_many(job_keys.split_member(member.decode()) for member in members)


def _readable(record: Mapping[bytes, bytes]) -> Job | None:
    try:
        return records.decode(record)
    except (ValueError, TypeError, KeyError, OptionError) as error:
        _log.error("the record of job %r cannot be read: %s", record.get(b"id"), error)
        return None


def _all_keys(keys: JobKeys) -> list[str]:
    shared = [job_keys.ACTIVE, job_keys.PARKED, job_keys.COUNTS]
    return [keys.record, keys.claim, keys.events, keys.tokens, *shared]
