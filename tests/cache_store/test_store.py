"""Putting, finding, keeping and deleting objects."""

from __future__ import annotations

import pytest
import redis

from cache_store.errors import ObjectMissing
from cache_store.manifest import MAX_PART_BYTES, MAX_PARTS
from cache_store.store import CacheStore
from cache_store.upload import OBJECT_OVERHEAD
from tests.cache_store.helpers import NeverRead, keys_of, name_of, put

NAME = name_of("object")


def test_what_is_put_can_be_read(store: CacheStore) -> None:
    manifest = store.put("state", NAME, iter([b"one", b"three"]), size=8, meta={"seen": 5, "of": ["a", None]})
    assert store.manifest("state", NAME) == manifest
    assert manifest.meta == {"seen": 5, "of": ["a", None]}
    assert (manifest.size, [part.size for part in manifest.parts]) == (8, [3, 5])
    assert list(store.parts("state", NAME)) == [b"one", b"three"]
    assert list(store.parts("state", NAME, [1, 0, 1])) == [b"three", b"one", b"three"]
    assert store.part("state", NAME, 1, manifest) == b"three"


def test_batches_larger_than_one_round_trip(store: CacheStore) -> None:
    parts = [bytes([index]) * 3_000_000 for index in range(7)]
    put(store, NAME, *parts)
    assert list(store.parts("state", NAME)) == parts


def test_object_without_parts(store: CacheStore) -> None:
    put(store, NAME)
    assert store.exists("state", [NAME]) == [True]
    assert list(store.parts("state", NAME)) == []


def test_existing_object_is_touched_and_not_written(store: CacheStore) -> None:
    first = put(store, NAME, b"bytes")
    again = store.put("state", NAME, NeverRead(), size=5)
    assert again == first
    assert store.usage().bytes == 5 + OBJECT_OVERHEAD


def test_replace_leaves_only_the_new_object(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, b"old", b"old", b"old")
    store.keep("state", NAME)
    store.put("state", NAME, [b"new"], size=3, replace=True)
    assert list(store.parts("state", NAME)) == [b"new"]
    assert store.usage().bytes == 3 + OBJECT_OVERHEAD
    assert len(keys_of(redis_client)) == 4  # manifest, part, two keys of the index
    assert not store.delete_superseded("state", NAME), "replacing forgets that an object is kept"


def test_kinds_do_not_mix(store: CacheStore) -> None:
    put(store, NAME, b"state")
    put(store, NAME, b"checkpoint", kind="checkpoint")
    assert store.part("checkpoint", NAME, 0) == b"checkpoint"
    assert store.exists("tokens", [NAME]) == [False]
    assert [found.kind for found in store.list("checkpoint")] == ["checkpoint"]
    with pytest.raises(ValueError, match="the manifest belongs to state"):
        store.part("checkpoint", NAME, 0, store.manifest("state", NAME))


def test_exists_answers_in_order(store: CacheStore) -> None:
    put(store, name_of("b"), b"x")
    assert store.exists("state", [name_of("a"), name_of("b"), name_of("c")]) == [False, True, False]
    assert store.exists("state", []) == []


def test_superseded_objects_go_unless_kept(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, name_of("old"), b"x")
    put(store, name_of("kept"), b"x")
    store.keep("state", name_of("kept"))
    assert store.delete_superseded("state", name_of("old"))
    assert not store.delete_superseded("state", name_of("old"))
    assert not store.delete_superseded("state", name_of("kept"))
    assert store.exists("state", [name_of("old"), name_of("kept")]) == [False, True]
    assert store.delete("state", name_of("kept"))
    assert keys_of(redis_client) == set()


def test_keep_of_nothing(store: CacheStore) -> None:
    with pytest.raises(ObjectMissing, match="no stored state"):
        store.keep("state", NAME)


def test_delete_all_leaves_nothing(store: CacheStore, redis_client: redis.Redis) -> None:
    for index in range(230):
        put(store, name_of(str(index)), b"x", kind="tokens" if index % 2 else "state")
    assert store.delete_all() == 230
    assert keys_of(redis_client) == set()
    assert (store.usage().bytes, store.usage().objects) == (0, 0)


def test_list_is_by_age(store: CacheStore) -> None:
    made = [put(store, name_of(str(index)), b"x") for index in range(5)]
    assert list(store.list("state")) == sorted(made, key=lambda found: (found.created_ms, found.name))


@pytest.mark.parametrize("index", [-1, 1])
def test_part_that_the_object_does_not_have(store: CacheStore, index: int) -> None:
    put(store, NAME, b"x")
    with pytest.raises(IndexError, match="it has 1 parts"):
        store.part("state", NAME, index)


@pytest.mark.parametrize(
    ("parts", "size", "reason"),
    [
        ([bytes(MAX_PART_BYTES + 1)], MAX_PART_BYTES + 1, "part 0 has 16777217 bytes; allowed are 1 to"),
        ([b"x", b""], 1, "part 1 has 0 bytes"),
        ([b"xxx", b"yy"], 4, "more than the 4 bytes announced"),
        ([b"x"] * (MAX_PARTS + 1), MAX_PARTS + 1, f"more than {MAX_PARTS} parts"),
        ([], -1, "size is -1"),
        ([], MAX_PARTS * MAX_PART_BYTES + 1, "size is 68719476737; allowed are"),
    ],
    ids=[
        "part too large",
        "empty part",
        "more than announced",
        "too many parts",
        "negative",
        "size too large",
    ],
)
def test_sizes_are_checked_before_sending(
    redis_client: redis.Redis, tenant: str, parts: list[bytes], size: int, reason: str
) -> None:
    """Reports row 18: a clear error, never a broken connection; and nothing stays."""
    store = CacheStore(redis_client, tenant, byte_budget=2**40)
    with pytest.raises(ValueError, match=reason):
        store.put("state", NAME, parts, size=size)
    assert keys_of(redis_client) == set()


def test_meta_that_is_too_long(store: CacheStore, redis_client: redis.Redis) -> None:
    with pytest.raises(ValueError, match="the manifest has"):
        store.put("state", NAME, [b"x"], size=1, meta={"text": "x" * 1024**2})
    assert keys_of(redis_client) == set()


@pytest.mark.parametrize("ttl", [0, -1, 10**9])
def test_ttl_out_of_bounds(store: CacheStore, ttl: int) -> None:
    with pytest.raises(ValueError, match="ttl is"):
        store.put("state", NAME, [], size=0, ttl=ttl)
