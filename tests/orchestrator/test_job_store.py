"""Transitions: each happens once, for the one who holds the claim, and writes all of it or nothing."""

from __future__ import annotations

import dataclasses
import threading
import time
from typing import Any

import pytest
import redis

from orchestrator.errors import ClaimLost, JobStoreUnavailable, UnknownJob
from orchestrator.job_keys import ACTIVE, PARKED, JobKeys
from orchestrator.job_store import JobStore, Move
from orchestrator.jobs import Job, JobOptions
from orchestrator.settings import Settings
from tests.orchestrator.harness import until


@pytest.fixture
def jobs(settings: Settings, redis_client: redis.Redis) -> JobStore:
    return JobStore(redis_client, settings)


@pytest.fixture
def job(jobs: JobStore) -> Job:
    """A new job."""
    now = time.time()
    made = Job(
        id="j1",
        tenant="default",
        kind="summarize",
        title="ä\n.txt",
        status="submitted",
        options=JobOptions(query="what?", policy_parameters={"temper": "0.5"}),
        created=now,
        updated=now,
    )
    jobs.create(made)
    return made


def claimed(jobs: JobStore, job: Job) -> Job:
    """The job, claimed with the token t1."""
    assert jobs.move(job, Move({"status": "ingest"}, [("stage", {"stage": "ingest"})], claim="t1"))
    return dataclasses.replace(job, claim="t1")


def kinds(client: Any, job: Job) -> list[str]:
    return [fields[b"kind"].decode() for _, fields in client.xrange(JobKeys(job.tenant, job.id).events)]


def test_record_comes_back_as_it_was(jobs: JobStore, job: Job) -> None:
    assert jobs.load("default", "j1") == job
    assert jobs.all("default") == [job]
    assert jobs.active() == [job]


def test_unknown_job(jobs: JobStore, job: Job) -> None:
    with pytest.raises(UnknownJob, match="there is no job 'j2'"):
        jobs.load("default", "j2")
    with pytest.raises(UnknownJob):
        jobs.load("other", "j1")
    with pytest.raises(UnknownJob):
        jobs.cancel("default", "j2")
    assert not jobs.move(dataclasses.replace(job, id="j2"), Move({"status": "done"}))


def test_one_of_many_claims_at_once(jobs: JobStore, job: Job) -> None:
    barrier = threading.Barrier(8)
    won: list[str] = []

    def claim(token: str) -> None:
        barrier.wait()
        if jobs.move(job, Move({"status": "ingest"}, claim=token)):
            won.append(token)

    threads = [threading.Thread(target=claim, args=(f"t{i}",)) for i in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(won) == 1
    assert jobs.load("default", "j1").claim == won[0]


@pytest.mark.parametrize(
    "change", [{"stage": "prefill"}, {"segment": 1}, {"attempt": 1}, {"claim": "t2"}], ids=str
)
def test_move_from_another_place_does_nothing(
    jobs: JobStore, job: Job, redis_client: redis.Redis, change: dict[str, object]
) -> None:
    mine = claimed(jobs, job)
    before = redis_client.hgetall(JobKeys("default", "j1").record)
    elsewhere = dataclasses.replace(mine, **change)  # type: ignore[arg-type]
    assert not jobs.move(elsewhere, Move({"status": "done"}, [("done", {})], final=True))
    assert redis_client.hgetall(JobKeys("default", "j1").record) == before
    assert kinds(redis_client, job) == ["stage"]


def test_unknown_field_is_refused(jobs: JobStore, job: Job) -> None:
    with pytest.raises(KeyError, match="colour"):
        jobs.move(job, Move({"colour": "red"}))


def test_claim_lapses_unless_renewed(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    claim = JobKeys(job.tenant, job.id).claim
    mine = claimed(jobs, job)
    assert redis_client.exists(claim)
    assert not jobs.move(mine, Move({"status": "failed"}, dead=True)), "it lives"
    until(lambda: not redis_client.exists(claim), "the claim lapses")
    assert jobs.beat(mine, "t1", None), "late, but nobody has taken it over"
    assert redis_client.exists(claim)
    until(lambda: not redis_client.exists(claim), "the claim lapses")
    assert jobs.move(mine, Move({"attempt": 1}, dead=True))
    assert not jobs.beat(mine, "t1", None)
    assert not redis_client.exists(claim)


def test_nothing_is_written_without_the_claim(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    mine = claimed(jobs, job)
    jobs.emit(mine, "t1", "progress", {"fraction": 0.5})
    jobs.token(mine, "t1", 0, "a")
    jobs.cancel("default", "j1")
    with pytest.raises(ClaimLost):
        jobs.emit(mine, "t1", "progress", {"fraction": 1.0})
    with pytest.raises(ClaimLost):
        jobs.token(mine, "t1", 1, "b")
    assert not jobs.move(mine, Move({"status": "done"}, [("done", {})], final=True))
    assert kinds(redis_client, job) == ["stage", "progress", "token", "cancelled"]
    assert jobs.token_texts("default", "j1") == ["a"]


def test_token_is_written_once_and_in_order(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    mine = claimed(jobs, job)
    for index, text in [(0, "a"), (1, ""), (0, "a"), (1, ""), (2, "ü")]:
        jobs.token(mine, "t1", index, text)
    with pytest.raises(ValueError, match="token 4 came before"):
        jobs.token(mine, "t1", 4, "e")
    assert jobs.token_texts("default", "j1") == ["a", "", "ü"]
    assert kinds(redis_client, job).count("token") == 3


def test_end_is_final_and_expires(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    mine = claimed(jobs, job)
    jobs.token(mine, "t1", 0, "a")
    assert jobs.move(mine, Move({"status": "failed"}, [("failed", {})], final=True))
    assert not jobs.cancel("default", "j1")
    ended = jobs.load("default", "j1")
    assert ended.status == "failed"
    assert not jobs.move(ended, Move({"status": "done"}))
    assert redis_client.zcard(ACTIVE) == redis_client.zcard(PARKED) == 0
    keys = JobKeys("default", "j1")
    for key in (keys.record, keys.events, keys.tokens):
        assert 0 < redis_client.ttl(key) <= 7 * 24 * 3600


def test_expired_job_leaves_the_list(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    redis_client.delete(JobKeys("default", "j1").record)
    assert jobs.all("default") == []
    assert redis_client.zcard("docexpress:1:default:jobs") == 0


def test_parked_jobs_keep_their_turn(jobs: JobStore, job: Job) -> None:
    other = dataclasses.replace(job, id="j2")
    jobs.create(other)
    for one in (job, other, job):
        assert jobs.move(one, Move({"parked": True}, park="in"))
    assert [one.id for one in jobs.parked()] == ["j1", "j2"]
    assert jobs.move(job, Move({"parked": False}, park="out"))
    assert [one.id for one in jobs.parked()] == ["j2"]


def test_record_of_a_newer_version_is_read(jobs: JobStore, job: Job, redis_client: redis.Redis) -> None:
    redis_client.hset(JobKeys("default", "j1").record, "colour", '"red"')
    assert jobs.load("default", "j1") == job


@pytest.mark.parametrize("options", ["{", "{}x", '{"colour": 1}', '{"seed": -1}'])
def test_damaged_record_does_not_hide_the_others(
    jobs: JobStore, job: Job, redis_client: redis.Redis, options: str
) -> None:
    jobs.create(dataclasses.replace(job, id="j2"))
    redis_client.hset(JobKeys("default", "j1").record, "options", options)
    assert [one.id for one in jobs.active()] == ["j2"]


def test_unreachable_redis_is_one_sentence(settings: Settings) -> None:
    away = Settings(redis_url="redis://:secret@127.0.0.1:1/0")
    from cache_store.connection import connect

    with connect(away.redis_url) as client, pytest.raises(JobStoreUnavailable) as raised:
        JobStore(client, away).all("default")
    assert "Redis for jobs at 127.0.0.1:1 cannot be reached" in str(raised.value)
    assert "secret" not in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize("tenant", ["Default", "a:b", "", "workers", "celery", "orchestrator"])
def test_no_tenant_reaches_other_keys(jobs: JobStore, tenant: str) -> None:
    with pytest.raises(ValueError, match="tenant is"):
        jobs.load(tenant, "j1")
