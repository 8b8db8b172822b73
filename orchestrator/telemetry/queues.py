"""What waits and what runs: messages of the broker, and the jobs they stand for."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import redis
from prometheus_client.core import GaugeMetricFamily, Metric

from orchestrator import job_keys
from orchestrator.connection import job_store_errors
from orchestrator.jobs import STAGES, Job
from orchestrator.messages import QUEUE_OF, QUEUES
from orchestrator.reaper import queue_lengths

# Where kombu keeps what was delivered and not acknowledged: a hash of [message, exchange, routing key].
UNACKNOWLEDGED = job_keys.CELERY_PREFIX + "unacked"
JOB_STATES = ("queued", "running", "parked")


def unacknowledged(client: redis.Redis) -> dict[str, int]:
    """By queue, the messages that were delivered and not acknowledged. Raises JobStoreUnavailable."""
    with job_store_errors(client):
        entries: Any = client.hvals(UNACKNOWLEDGED)
    keys = Counter(json.loads(entry)[2] for entry in entries)
    return {queue: keys[queue] for queue in QUEUES}


def state_of(job: Job) -> str:
    """Of an unfinished job: does a task work on it, does it wait for a worker, or in its queue?"""
    if job.claim:
        return "running"
    return "parked" if job.parked else "queued"


def queue_families(client: redis.Redis, jobs: Sequence[Job]) -> Iterator[Metric]:
    """`jobs` are the unfinished ones. Raises JobStoreUnavailable."""
    messages = GaugeMetricFamily(
        "docexpress_queue_messages", "Messages of stages, by queue.", labels=["queue", "state"]
    )
    for state, numbers in (
        ("waiting", queue_lengths(client)),
        ("unacknowledged", unacknowledged(client)),
    ):
        for queue, number in numbers.items():
            messages.add_metric([queue, state], number)
    yield messages
    states = Counter((job.stage, state_of(job)) for job in jobs)
    places = GaugeMetricFamily("docexpress_jobs", "Unfinished jobs.", labels=["stage", "state"])
    for stage in STAGES:
        for state in JOB_STATES:
            places.add_metric([stage, state], states[stage, state])
    yield places
    depth = GaugeMetricFamily(
        "docexpress_queue_depth_jobs",
        "Unfinished jobs by queue, whether they wait, run or are parked: what to scale by.",
        labels=["queue"],
    )
    queues = Counter(QUEUE_OF[job.stage] for job in jobs)
    for queue in QUEUES:
        depth.add_metric([queue], queues[queue])
    yield depth
