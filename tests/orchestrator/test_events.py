"""The event stream: complete for whoever watches early, late, or in pieces; bounded all the same."""

from __future__ import annotations

import dataclasses
import threading

import pytest
import redis

from orchestrator.errors import OptionError, UnknownJob
from orchestrator.event_stream import follow
from orchestrator.events import Event
from orchestrator.job_keys import JobKeys
from orchestrator.job_store import JobStore, Move
from orchestrator.jobs import Job
from orchestrator.settings import Settings
from orchestrator.submission import _new_job
from tests.orchestrator.harness import options

COUNT = 700


@pytest.fixture
def jobs(settings: Settings, redis_client: redis.Redis) -> JobStore:
    short = settings.model_copy(update={"event_stream_length": 100})
    return JobStore(redis_client, short)


@pytest.fixture
def job(jobs: JobStore) -> Job:
    """A claimed job that writes."""
    made = _new_job("default", "summarize", "a.txt", options())
    jobs.create(made)
    assert jobs.move(made, Move({"status": "decode"}, [("stage", {"stage": "decode"})], claim="t"))
    return dataclasses.replace(made, claim="t")


def write(jobs: JobStore, job: Job, first: int, last: int) -> None:
    for index in range(first, last):
        jobs.token(job, "t", index, f"<{index}>")


def finish(jobs: JobStore, job: Job) -> None:
    assert jobs.move(job, Move({"status": "done", "result": {}}, [("done", {"result": {}})], final=True))


def tokens(events: list[Event]) -> list[tuple[int, str]]:
    return [(event.data["index"], event.data["text"]) for event in events if event.kind == "token"]


EXPECTED = [(index, f"<{index}>") for index in range(COUNT)]


def test_late_watcher_misses_no_token_of_a_trimmed_stream(
    jobs: JobStore, job: Job, redis_client: redis.Redis
) -> None:
    write(jobs, job, 0, COUNT)
    finish(jobs, job)
    assert redis_client.xlen(JobKeys("default", job.id).events) < COUNT / 2, "the stream is bounded"
    events = list(follow(jobs, "default", job.id))
    assert tokens(events) == EXPECTED
    assert events[-1].kind == "done"


def test_live_watcher_sees_everything_as_it_comes(jobs: JobStore, job: Job) -> None:
    seen: list[Event] = []
    first = threading.Event()

    def watch() -> None:
        for event in follow(jobs, "default", job.id):
            seen.append(event)
            first.set()

    thread = threading.Thread(target=watch)
    thread.start()
    assert first.wait(5)
    write(jobs, job, 0, COUNT)
    finish(jobs, job)
    thread.join(10)
    assert not thread.is_alive()
    assert tokens(seen) == EXPECTED
    assert [event.kind for event in seen if event.kind != "token"] == ["stage", "done"]


def first_events(jobs: JobStore, job: Job, count: int) -> list[Event]:
    watching = follow(jobs, "default", job.id)
    return [next(watching) for _ in range(count)]


def test_watching_can_be_taken_up_again(jobs: JobStore, job: Job) -> None:
    write(jobs, job, 0, 50)
    seen = first_events(jobs, job, 21)
    write(jobs, job, 50, 80)
    finish(jobs, job)
    seen += list(follow(jobs, "default", job.id, after=seen[-1].id))
    assert tokens(seen) == EXPECTED[:80]


def test_taken_up_behind_the_trimmed_part_tokens_come_again(jobs: JobStore, job: Job) -> None:
    write(jobs, job, 0, 50)
    seen = first_events(jobs, job, 21)
    write(jobs, job, 50, COUNT)
    finish(jobs, job)
    assert tokens(list(follow(jobs, "default", job.id, after=seen[-1].id))) == EXPECTED


@pytest.mark.parametrize("status", ["done", "failed", "cancelled"])
def test_finished_job_without_its_stream_still_ends(
    jobs: JobStore, job: Job, redis_client: redis.Redis, status: str
) -> None:
    write(jobs, job, 0, 3)
    fields = {"status": status, "reason": "why", "retryable": True, "result": {"summary": "x"}}
    assert jobs.move(job, Move(fields, final=True))
    redis_client.delete(JobKeys("default", job.id).events)
    events = list(follow(jobs, "default", job.id))
    assert tokens(events) == EXPECTED[:3]
    assert events[-1].kind == status
    if status == "failed":
        assert events[-1].data == {"reason": "why", "retryable": True, "invalid": False}


def test_event_tells_its_time(jobs: JobStore, job: Job) -> None:
    finish(jobs, job)
    event = next(follow(jobs, "default", job.id))
    assert abs(event.time - job.created) < 5


@pytest.mark.parametrize("after", ["", "x", "$", "1", "1-2-3"])
def test_no_event_id(jobs: JobStore, job: Job, after: str) -> None:
    with pytest.raises(OptionError, match="is not the id of an event"):
        next(follow(jobs, "default", job.id, after=after))


def test_unknown_job(jobs: JobStore) -> None:
    with pytest.raises(UnknownJob):
        next(follow(jobs, "default", "nobody"))
