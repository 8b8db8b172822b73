"""The registry: announcements expire, and whatever else stands there does no harm."""

from __future__ import annotations

from typing import Any

import pytest
import redis
from pydantic import ValidationError

from cache_store.connection import connect
from cache_store.errors import StoreUnavailable
from cache_store.worker_registry import (
    WORKER_PREFIX,
    WORKERS,
    WorkerRecord,
    alive,
    announce,
    sanitized,
    withdraw,
)
from tests.cache_store.helpers import keys_of, wait_until


def record(worker_id: str = "w1", **fields: Any) -> WorkerRecord:
    values: dict[str, object] = {
        "id": worker_id,
        "address": "127.0.0.1:50051",
        "model_name": "SmolLM2-135M-Instruct",
        "model_fingerprint": "f" * 64,
        "tokenizer_fingerprint": "e" * 64,
        "device": "cpu",
        "window": 8192,
        "capacity": 1,
        "bytes_per_token": 46080,
        "hot_states": ("a" * 64,),
        "version": "0.1.0",
        "started_at": 1.5e9,
    }
    return WorkerRecord.model_validate(values | fields)


def test_announced_workers_are_alive(redis_client: redis.Redis) -> None:
    announce(redis_client, record("w2"), 60)
    announce(redis_client, record("w1", draining=True), 60)
    assert alive(redis_client) == [record("w1", draining=True), record("w2")]


def test_announcing_again_updates(redis_client: redis.Redis) -> None:
    announce(redis_client, record(), 60)
    announce(redis_client, record(hot_states=()), 60)
    assert alive(redis_client) == [record(hot_states=())]


def test_a_silent_worker_disappears_and_leaves_nothing(redis_client: redis.Redis) -> None:
    announce(redis_client, record(), 0.05)
    wait_until(lambda: alive(redis_client) == [])
    assert keys_of(redis_client) == set()


def test_withdrawn_at_once(redis_client: redis.Redis) -> None:
    announce(redis_client, record("w1"), 60)
    announce(redis_client, record("w2"), 60)
    withdraw(redis_client, "w1")
    withdraw(redis_client, "never seen")
    assert [found.id for found in alive(redis_client)] == ["w2"]


def test_every_key_expires(redis_client: redis.Redis) -> None:
    announce(redis_client, record(), 60)
    assert keys_of(redis_client) == {WORKERS, f"{WORKER_PREFIX}w1"}
    assert all(redis_client.pttl(key) > 0 for key in keys_of(redis_client))


GARBAGE = {
    "no JSON": b"\xff{",
    "a list": b"[]",
    "nothing in it": b"{}",
    "another worker's": record("other").model_dump_json().encode(),
    "control characters": record().model_dump_json().replace("cpu", "\\u001b[2J").encode(),
    "text as number": record().model_dump_json().replace("8192", '"8192"').encode(),
    "negative": record().model_dump_json().replace("8192", "-1").encode(),
    "endless": b'{"id":"' + b"w" * 10_000_000,
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_is_left_out(redis_client: redis.Redis, raw: bytes, caplog: pytest.LogCaptureFixture) -> None:
    announce(redis_client, record("good"), 60)
    redis_client.set(f"{WORKER_PREFIX}w1", raw)
    redis_client.sadd(WORKERS, "w1")
    assert [found.id for found in alive(redis_client)] == ["good"]
    assert "w1" in caplog.text


def test_key_of_another_type_is_left_out(redis_client: redis.Redis) -> None:
    announce(redis_client, record("good"), 60)
    redis_client.rpush(f"{WORKER_PREFIX}w1", "x")
    redis_client.sadd(WORKERS, "w1")
    assert [found.id for found in alive(redis_client)] == ["good"]


def test_fields_of_newer_workers_are_ignored() -> None:
    raw = record().model_dump_json().replace("{", '{"later": 1, ', 1).encode()
    assert sanitized(b"w1", raw) == record()


@pytest.mark.parametrize(
    "fields",
    [{"id": ""}, {"id": "a b"}, {"id": "a\n"}, {"address": ""}, {"capacity": 0}, {"device": "a\x1b[0m"}],
    ids=str,
)
def test_a_worker_cannot_announce_nonsense(fields: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        record(**fields)


def test_unreachable_broker() -> None:
    with pytest.raises(StoreUnavailable, match=r"127\.0\.0\.1:1 cannot be reached"):
        alive(connect("redis://127.0.0.1:1/0"))
