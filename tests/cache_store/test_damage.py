"""Whatever stands in the server instead of what was written is detected and dropped, never returned."""

from __future__ import annotations

import json
from typing import Any

import pytest
import redis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from cache_store.errors import FormatMismatch, ObjectDamaged, ObjectMissing, StoreError
from cache_store.manifest import MAX_MANIFEST_BYTES
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, name_of, part_key, put

NAME = name_of("object")
PARTS = (b"first part", b"second part", b"third")


@pytest.mark.parametrize("index", range(3))
def test_every_flipped_byte_is_noticed(store: CacheStore, redis_client: redis.Redis, index: int) -> None:
    for at in range(len(PARTS[index])):
        manifest = put(store, NAME, *PARTS)
        flipped = bytearray(PARTS[index])
        flipped[at] ^= 1 << at % 8
        redis_client.set(part_key(store, manifest, index), bytes(flipped))
        with pytest.raises(ObjectDamaged, match=f"Part {index} of the state .* does not match its checksum"):
            list(store.parts("state", NAME))
        assert store.exists("state", [NAME]) == [False]
    assert keys_of(redis_client) == set()


@pytest.mark.parametrize("content", [b"first par", b"first part+", b"x" * 1_000_000], ids=len)
def test_part_of_another_length(store: CacheStore, redis_client: redis.Redis, content: bytes) -> None:
    redis_client.set(part_key(store, put(store, NAME, *PARTS), 0), content)
    with pytest.raises(ObjectDamaged, match="checksum"):
        store.part("state", NAME, 0)
    assert keys_of(redis_client) == set()


@pytest.mark.parametrize("what", ["part", "manifest"])
def test_value_of_another_type(store: CacheStore, redis_client: redis.Redis, what: str) -> None:
    manifest = put(store, NAME, *PARTS)
    key = part_key(store, manifest, 1) if what == "part" else store.keys.manifest("state", NAME)
    redis_client.delete(key)
    redis_client.rpush(key, "not", "a", "string")
    with pytest.raises(ObjectDamaged):
        list(store.parts("state", NAME))
    assert keys_of(redis_client) == set()


def change(raw: bytes, **fields: Any) -> bytes:
    return json.dumps({**json.loads(raw), **fields}).encode()


HOSTILE: dict[str, dict[str, Any]] = {
    "negative size": {"size": -1},
    "size is not the sum": {"size": 10**15},
    "too many parts": {"parts": [{"size": 1, "sha256": "0" * 64}] * 4097, "size": 4097},
    "inflated part": {"parts": [{"size": 2**40, "sha256": "0" * 64}], "size": 2**40},
    "part of nothing": {"parts": [{"size": 0, "sha256": "0" * 64}], "size": 0},
    "checksum is none": {"parts": [{"size": 1, "sha256": "../../etc"}], "size": 1},
    "path as name": {"name": "../../etc/passwd"},
    "another object's": {"name": name_of("another")},
    "another kind": {"kind": "tokens"},
    "unknown kind": {"kind": "module"},
    "generation with a glob": {"generation": "*" * 32},
    "eternal": {"ttl_seconds": 10**12},
    "unknown field": {"__reduce__": "os.system"},
    "meta is a list": {"meta": []},
    "size is text": {"size": "26"},
    "size is a float": {"size": 26.0},
    "created is not finite": {"created_ms": float("nan")},
}


@pytest.mark.parametrize("fields", HOSTILE.values(), ids=HOSTILE.keys())
def test_hostile_manifest(store: CacheStore, redis_client: redis.Redis, fields: dict[str, Any]) -> None:
    put(store, NAME, *PARTS)
    key = store.keys.manifest("state", NAME)
    raw = redis_client.get(key)
    assert isinstance(raw, bytes)
    redis_client.set(key, change(raw, **fields))
    with pytest.raises(ObjectDamaged, match=f"manifest of state {NAME}"):
        store.manifest("state", NAME)
    assert keys_of(redis_client) == set()


GARBAGE = {
    "empty list": b"[]",
    "null": b"null",
    "half": b'{"format":1,"kind":"state"',
    "not UTF-8": b"\xff\xfe\x00{",
    "pickle": b"\x80\x04\x95\x0f\x00\x00\x00\x00\x00\x00\x00\x8c\x02os",
    "deep": b'{"format":1,"meta":' + b"[" * 100_000,
    "huge": b'{"format":1,"x":"' + b"y" * (2 * MAX_MANIFEST_BYTES) + b'"}',
    "huge number": b'{"format":' + b"9" * 10_000 + b"}",
}


@pytest.mark.parametrize("raw", GARBAGE.values(), ids=GARBAGE.keys())
def test_garbage_in_place_of_a_manifest(store: CacheStore, redis_client: redis.Redis, raw: bytes) -> None:
    put(store, NAME, *PARTS)
    redis_client.set(store.keys.manifest("state", NAME), raw)
    with pytest.raises(ObjectDamaged):
        store.manifest("state", NAME)
    assert keys_of(redis_client) == set()


def test_manifest_padded_beyond_the_limit(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, *PARTS)
    redis_client.append(store.keys.manifest("state", NAME), " " * MAX_MANIFEST_BYTES)
    with pytest.raises(ObjectDamaged, match="longer than"):
        store.manifest("state", NAME)
    assert keys_of(redis_client) == set()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(raw=st.binary(max_size=200))
def test_any_bytes_in_place_of_a_manifest(store: CacheStore, redis_client: redis.Redis, raw: bytes) -> None:
    redis_client.set(store.keys.manifest("state", NAME), raw)
    with pytest.raises(ObjectDamaged if raw else ObjectMissing):
        store.manifest("state", NAME)
    assert keys_of(redis_client) == set()


def test_another_format_version_is_refused_and_kept(store: CacheStore, redis_client: redis.Redis) -> None:
    """Reports row 4: what a newer program wrote is neither misread nor destroyed by reading."""
    put(store, NAME, *PARTS)
    key = store.keys.manifest("state", NAME)
    raw = redis_client.get(key)
    assert isinstance(raw, bytes)
    redis_client.set(key, change(raw, format=2, parts="laid out differently"))
    with pytest.raises(FormatMismatch, match="format version 2; this program reads version 1"):
        store.manifest("state", NAME)
    assert store.exists("state", [NAME]) == [True]
    put(store, NAME, *PARTS)
    assert list(store.parts("state", NAME)) == list(PARTS)


def test_damaged_objects_are_left_out_of_listings(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, name_of("good"), b"x")
    put(store, NAME, *PARTS)
    redis_client.set(store.keys.manifest("state", NAME), b"garbage")
    assert [found.name for found in store.list("state")] == [name_of("good")]


def test_no_error_carries_what_was_stored(store: CacheStore, redis_client: redis.Redis) -> None:
    redis_client.set(store.keys.manifest("state", NAME), b'{"format": "secret sentence of a document"}')
    with pytest.raises(StoreError) as caught:
        store.manifest("state", NAME)
    assert "secret" not in str(caught.value)
