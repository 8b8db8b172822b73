"""Everything expires unless it is read, and reading pays for that rarely."""

from __future__ import annotations

import pytest
import redis

from cache_store.scripts import GRACE_MS
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, name_of, part_key, put, wait_until

NAME = name_of("object")
HOUR_MS = 3_600_000


def left_ms(client: redis.Redis, key: str) -> int:
    left = client.pttl(key)
    assert isinstance(left, int)
    return left


def commands(client: redis.Redis) -> int:
    """PEXPIRE commands the server has run so far."""
    stats = client.info("commandstats")
    assert isinstance(stats, dict)
    return int(stats.get("cmdstat_pexpire", {"calls": 0})["calls"])


def test_every_key_expires_when_the_object_does(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, b"a", b"b", ttl=3600)
    keys = keys_of(redis_client)
    assert len(keys) == 5
    assert all(0.9 * HOUR_MS < left_ms(redis_client, key) <= HOUR_MS + GRACE_MS for key in keys)


@pytest.mark.parametrize("ttls", [(7200, 60), (60, 7200)], ids=["longest first", "longest last"])
def test_the_index_lives_as_long_as_its_longest_lived_member(
    store: CacheStore, redis_client: redis.Redis, ttls: tuple[int, int]
) -> None:
    for ttl in ttls:
        put(store, name_of(str(ttl)), b"a", ttl=ttl)
    for key in (store.keys.book, store.keys.expiry):
        assert 2 * HOUR_MS < left_ms(redis_client, key) <= 2 * HOUR_MS + GRACE_MS


def test_object_expires_as_a_whole(store: CacheStore) -> None:
    put(store, NAME, b"a", ttl=1)
    wait_until(lambda: store.exists("state", [NAME]) == [False])
    assert store.usage().objects == 0
    assert list(store.list("state")) == []


@pytest.mark.parametrize("way", ["manifest", "parts", "put"])
def test_using_an_object_renews_all_of_it(store: CacheStore, redis_client: redis.Redis, way: str) -> None:
    manifest = put(store, NAME, b"a", b"b", ttl=3600)
    keys = [store.keys.manifest("state", NAME), *(part_key(store, manifest, index) for index in range(2))]
    for key in keys:
        redis_client.pexpire(key, 60_000)
    redis_client.zadd(store.keys.expiry, {f"state:{NAME}": 1})
    if way == "manifest":
        store.manifest("state", NAME)
    elif way == "parts":
        list(store.parts("state", NAME))
    else:
        put(store, NAME, b"a", b"b")
    assert all(left_ms(redis_client, key) > 0.9 * HOUR_MS for key in keys)
    assert store.usage().objects == 1, "the index must know of the new time"


def test_reading_again_at_once_renews_nothing(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, *(b"x" for _ in range(30)), ttl=3600)
    before = commands(redis_client)
    for _ in range(10):
        list(store.parts("state", NAME))
    assert commands(redis_client) == before


def test_looking_renews_nothing(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, b"x", ttl=3600)
    redis_client.pexpire(store.keys.manifest("state", NAME), 60_000)
    store.exists("state", [NAME])
    store.list("state")
    assert left_ms(redis_client, store.keys.manifest("state", NAME)) <= 60_000


def test_a_key_made_eternal_by_somebody_expires_again(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, b"x", ttl=3600)
    redis_client.persist(store.keys.manifest("state", NAME))
    store.manifest("state", NAME)
    assert 0 < left_ms(redis_client, store.keys.manifest("state", NAME)) <= HOUR_MS
