"""No tenant finds, reads, counts or deletes what another one stored (reports row 6)."""

from __future__ import annotations

import pytest
import redis

from cache_store.errors import ObjectMissing
from cache_store.keys import KINDS
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, name_of, put

NAME = name_of("the same document")


@pytest.fixture
def alice(redis_client: redis.Redis) -> CacheStore:
    return CacheStore(redis_client, "alice")


@pytest.fixture
def bob(redis_client: redis.Redis) -> CacheStore:
    return CacheStore(redis_client, "bob")


@pytest.mark.parametrize("kind", KINDS)
def test_hit_for_one_is_a_miss_for_the_other(alice: CacheStore, bob: CacheStore, kind: str) -> None:
    put(alice, NAME, b"alice's", kind=kind)
    assert alice.exists(kind, [NAME]) == [True]
    assert bob.exists(kind, [NAME]) == [False]
    assert list(bob.list(kind)) == []
    with pytest.raises(ObjectMissing):
        bob.manifest(kind, NAME)
    with pytest.raises(ObjectMissing):
        bob.keep(kind, NAME)
    assert not bob.delete(kind, NAME)
    assert bob.delete_all() == 0
    assert alice.part(kind, NAME, 0) == b"alice's"


def test_a_manifest_does_not_open_another_tenants_parts(alice: CacheStore, bob: CacheStore) -> None:
    manifest = put(alice, NAME, b"alice's")
    with pytest.raises(ObjectMissing):
        bob.part("state", NAME, 0, manifest)
    assert alice.part("state", NAME, 0) == b"alice's"


def test_the_same_object_is_stored_and_counted_for_each(alice: CacheStore, bob: CacheStore) -> None:
    put(alice, NAME, b"same")
    asked = []
    bob.put("state", NAME, (asked.append(True) or part for part in [b"same"]), size=4)  # type: ignore[func-returns-value]
    assert asked, "a hit on another tenant's object would tell bob that it exists"
    assert alice.usage().bytes == bob.usage().bytes > 0
    alice.delete("state", NAME)
    assert bob.part("state", NAME, 0) == b"same"


def test_every_key_carries_its_tenant(alice: CacheStore, bob: CacheStore, redis_client: redis.Redis) -> None:
    for store in (alice, bob):
        for kind in KINDS:
            put(store, NAME, b"a", b"b", kind=kind)
    keys = keys_of(redis_client)
    assert all(key.startswith(("docexpress:1:alice:", "docexpress:1:bob:")) for key in keys)
    assert alice.delete_all() == len(KINDS)
    assert {key for key in keys if ":bob:" in key} == keys_of(redis_client)
