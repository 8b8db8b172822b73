"""The Celery application's settings, and that messages carry a place and nothing else."""

from __future__ import annotations

import base64
import dataclasses
import json
from typing import Any

import pytest
from celery import Celery, current_app

from orchestrator.celery_app import broker_url, main, make_app
from orchestrator.errors import JobStoreUnavailable, OptionError
from orchestrator.job_keys import CELERY_PREFIX
from orchestrator.messages import QUEUE_OF, QUEUES, StageMessage
from orchestrator.settings import Settings
from orchestrator.tasks import CelerySender


@pytest.fixture
def app(settings: Settings) -> Celery:
    return make_app(settings.model_copy(update={"visibility_timeout": 4321}))


def test_three_visibility_timeouts_are_alike(app: Celery) -> None:
    conf = app.conf
    assert {
        conf.broker_transport_options["visibility_timeout"],
        conf.result_backend_transport_options["visibility_timeout"],
        conf.visibility_timeout,
    } == {4321}
    with app.connection_for_write() as connection:
        assert connection.default_channel.visibility_timeout == 4321


def test_reliable_delivery_and_json_alone(app: Celery) -> None:
    conf = app.conf
    assert conf.accept_content == ["json"]
    assert conf.task_serializer == "json"
    assert conf.task_acks_late
    assert conf.task_reject_on_worker_lost
    assert conf.worker_prefetch_multiplier == 1
    assert conf.task_ignore_result
    assert conf.result_backend is None
    assert not conf.worker_enable_remote_control


def test_app_is_no_hidden_global(app: Celery) -> None:
    assert current_app._get_current_object() is not app


@pytest.mark.parametrize("stage", QUEUE_OF)
def test_message_reaches_the_queue_of_its_stage_alone(app: Celery, redis_client: Any, stage: str) -> None:
    message = StageMessage("j1", "default", stage, 3, 2)  # type: ignore[arg-type]
    sender = CelerySender(app)
    sender.send(message)
    sender.close()
    lengths = {queue: redis_client.llen(CELERY_PREFIX + queue) for queue in QUEUES}
    assert lengths == {queue: int(queue == QUEUE_OF[stage]) for queue in QUEUES}  # type: ignore[index]
    (raw,) = redis_client.lrange(CELERY_PREFIX + QUEUE_OF[stage], 0, -1)  # type: ignore[index]
    envelope = json.loads(raw)
    assert envelope["content-type"] == "application/json"
    _, kwargs, _ = json.loads(base64.b64decode(envelope["body"]))
    assert kwargs == dataclasses.asdict(message)
    assert all(key.startswith(b"docexpress:1:celery:") for key in redis_client.keys("*"))


def test_unreachable_broker_does_not_raise() -> None:
    """The reaper sends the message later."""
    sender = CelerySender(make_app(Settings(redis_url="redis://127.0.0.1:1/0")))
    sender.send(StageMessage("j1", "default", "ingest", 0, 0))
    sender.close()


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("redis://:p@h:1/2", "redis://:p@h:1/2"),
        ("rediss://h/0", "rediss://h/0"),
        ("unix:///run/valkey.sock", "redis+socket:///run/valkey.sock"),
        ("unix:///run/valkey.sock?db=3", "redis+socket:///run/valkey.sock?virtual_host=3"),
    ],
)
def test_broker_url(url: str, expected: str) -> None:
    assert broker_url(url) == expected


def test_main_refuses_what_cannot_work(settings: Settings) -> None:
    with pytest.raises(OptionError, match="queues are other, but must be some of prefill, compress, decode"):
        main(settings, queues=["other"])
    with pytest.raises(OptionError, match="queues are none"):
        main(settings, queues=[])
    with pytest.raises(JobStoreUnavailable):
        main(settings.model_copy(update={"redis_url": "redis://127.0.0.1:1/0"}))
