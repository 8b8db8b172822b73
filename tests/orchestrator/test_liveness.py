"""An orchestrator that no longer consumes is found out, though it looks alive."""

from __future__ import annotations

import threading

import pytest
import redis

from orchestrator import liveness
from orchestrator.celery_app import make_app
from orchestrator.errors import JobStoreUnavailable
from orchestrator.liveness import Consumption, consuming
from orchestrator.messages import QUEUES, StageMessage
from orchestrator.runtime import Runtime
from orchestrator.settings import Settings
from orchestrator.tasks import CelerySender
from tests.orchestrator.harness import until


def test_idle_with_an_empty_queue_is_fine() -> None:
    consumption = Consumption(1)
    assert consumption.neglected(0) == 0
    assert consumption.neglected(0) == 0


def test_messages_that_nobody_takes_are_neglected() -> None:
    consumption = Consumption(1)
    consumption.neglected(3)
    until(lambda: consumption.neglected(3) > 0.05, "time passes")
    with consumption.task():
        assert consumption.neglected(3) == 0, "all threads are busy"
    assert consumption.neglected(3) < 0.05, "something was taken"


def test_process_that_stops_consuming_starts_again(settings: Settings, redis_client: redis.Redis) -> None:
    """There is a message, and no Celery worker to take it."""
    short = settings.model_copy(update={"stuck_seconds": 0.2})
    restarted, others = threading.Event(), threading.Event()
    app = make_app(short)
    sender = CelerySender(app)
    sender.send(StageMessage("j1", "default", "ingest", 0, 0))
    with Runtime(short, app, concurrency=1, queues=["decode"], restart=others.set):
        with Runtime(short, app, concurrency=1, queues=["prefill"], restart=restarted.set):
            assert restarted.wait(10)
        assert not others.is_set(), "the message was not for this one"
    sender.close()


def test_consuming_is_said_and_taken_back(settings: Settings, redis_client: redis.Redis) -> None:
    assert not consuming(settings)
    app = make_app(settings)
    with Runtime(settings, app, concurrency=1, queues=QUEUES, restart=lambda: None):
        until(lambda: consuming(settings), "it says that it consumes")
        assert not consuming(settings, host="elsewhere")
    assert not consuming(settings)
    app.close()


def test_silent_process_is_forgotten(settings: Settings, redis_client: redis.Redis) -> None:
    redis_client.zadd("docexpress:1:orchestrator:processes", {"h:1": 1.0})
    assert liveness.processes(redis_client) == []
    liveness.announce(redis_client, "h:2")
    assert redis_client.zcard("docexpress:1:orchestrator:processes") == 1


def test_unreachable_redis(settings: Settings) -> None:
    with pytest.raises(JobStoreUnavailable):
        consuming(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
