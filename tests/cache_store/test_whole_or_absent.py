"""A reader finds a whole object or none, whoever writes, dies or deletes meanwhile (reports rows 1 and 3)."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import redis

from cache_store.errors import ObjectMissing
from cache_store.store import CacheStore
from cache_store.upload import LEASE_MS, OBJECT_OVERHEAD
from tests.cache_store.helpers import keys_of, name_of, part_key, put, wait_until

NAME = name_of("object")
MIB = 1024**2


def test_nothing_is_visible_before_the_last_part(store: CacheStore) -> None:
    seen = []

    def parts() -> Iterator[bytes]:
        for index in range(20):  # several batches
            yield bytes([index]) * MIB
            seen.append(store.exists("state", [NAME])[0])

    store.put("state", NAME, parts(), size=20 * MIB)
    assert seen == [False] * 20
    assert store.exists("state", [NAME]) == [True]


def test_failure_half_way_leaves_nothing(store: CacheStore, redis_client: redis.Redis) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(2 * MIB)
        assert any(":state:" in key for key in keys_of(redis_client)), "the first batch must be there by now"
        raise RuntimeError("the device is gone")

    with pytest.raises(RuntimeError, match="device is gone"):
        store.put("state", NAME, parts(), size=20 * MIB)
    assert keys_of(redis_client) == set()
    assert store.usage().bytes == 0


WRITE_AND_STALL = """
import sys, threading
from cache_store.connection import connect
from cache_store.store import CacheStore

def parts():
    for _ in range(10):
        yield bytes(2 * 1024**2)
    print("half", flush=True)
    threading.Event().wait()

CacheStore(connect(sys.argv[1]), sys.argv[2]).put("state", sys.argv[3], parts(), size=20 * 1024**2)
"""


def test_killed_writer_leaves_only_what_expires(
    store: CacheStore, redis_client: redis.Redis, valkey_url: str
) -> None:
    command = [sys.executable, "-c", WRITE_AND_STALL, valkey_url, store.tenant, NAME]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"half\n"
        os.kill(writer.pid, signal.SIGKILL)
    assert store.exists("state", [NAME]) == [False]
    parts = [key for key in keys_of(redis_client) if ":state:" in key]
    assert parts
    assert all(0 < int(redis_client.pttl(key)) <= LEASE_MS for key in parts)
    # When the lease ends, its bytes no longer count, and what is left of the parts goes with it.
    (member,) = redis_client.zrange(store.keys.expiry, 0, -1)
    assert isinstance(member, bytes)
    redis_client.zadd(store.keys.expiry, {member: 1})
    assert store.usage().bytes == 0
    assert keys_of(redis_client) == set()


@pytest.mark.parametrize("lost", [0, 1, 2])
def test_missing_part_is_a_clean_miss(store: CacheStore, redis_client: redis.Redis, lost: int) -> None:
    manifest = put(store, NAME, b"a", b"b", b"c")
    redis_client.delete(part_key(store, manifest, lost))
    with pytest.raises(ObjectMissing, match=f"Part {lost} of the state"):
        list(store.parts("state", NAME))
    assert store.exists("state", [NAME]) == [False], "what cannot be read must not be announced as a hit"
    assert keys_of(redis_client) == set()
    assert list(store.parts("state", NAME, manifest=put(store, NAME, b"a", b"b", b"c"))) == [b"a", b"b", b"c"]


def test_put_rebuilds_an_object_that_lost_a_part(store: CacheStore, redis_client: redis.Redis) -> None:
    manifest = put(store, NAME, b"a", b"b")
    redis_client.delete(part_key(store, manifest, 1))
    put(store, NAME, b"a", b"b")
    assert list(store.parts("state", NAME)) == [b"a", b"b"]


def test_missing_manifest_is_a_clean_miss(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, b"a", b"b")
    redis_client.delete(store.keys.manifest("state", NAME))
    with pytest.raises(ObjectMissing, match="no stored state"):
        store.manifest("state", NAME)
    assert keys_of(redis_client) == set(), "parts without a manifest must not stay"


def test_parts_lost_during_the_upload_are_noticed(store: CacheStore, redis_client: redis.Redis) -> None:
    def parts() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(2 * MIB)
        lost = next(key for key in keys_of(redis_client) if key.endswith(":0"))
        redis_client.delete(lost)

    with pytest.raises(ObjectMissing, match="before its upload had ended"):
        store.put("state", NAME, parts(), size=20 * MIB)
    assert keys_of(redis_client) == set()


def test_concurrent_writers_both_succeed_and_count_once(store: CacheStore, redis_client: redis.Redis) -> None:
    together = threading.Barrier(4, timeout=20)

    def write(writer: int) -> list[bytes]:
        def parts() -> Iterator[bytes]:
            yield bytes([writer]) * MIB
            together.wait()  # all of them have begun; nobody has ended
            yield bytes([writer])

        manifest = store.put("state", NAME, parts(), size=MIB + 1)
        return list(store.parts("state", NAME, manifest=manifest))

    with ThreadPoolExecutor(4) as pool:
        read = list(pool.map(write, range(4)))
    assert all(parts == read[0] for parts in read), "the first one's object is everybody's"
    assert read[0][0][:1] == read[0][1], "no mixture of two writers"
    assert store.usage().bytes == MIB + 1 + OBJECT_OVERHEAD
    assert len(keys_of(redis_client)) == 5


def test_reader_of_a_replaced_object_reads_no_mixture(store: CacheStore) -> None:
    old = put(store, NAME, b"old" * MIB, b"old" * MIB, b"old" * MIB)
    reading = store.parts("state", NAME, manifest=old)
    assert next(reading)[:3] == b"old"
    store.put("state", NAME, [b"new" * MIB], size=3 * MIB, replace=True)
    with pytest.raises(ObjectMissing):
        list(reading)
    assert store.part("state", NAME, 0)[:3] == b"new", "the new object must survive the old one's reader"


def test_state_survives_while_writers_and_deleters_race(store: CacheStore) -> None:
    stop = threading.Event()
    payload = [bytes([index]) * 1000 for index in range(8)]
    outcomes: set[str] = set()

    def write() -> None:
        while not stop.is_set():
            with contextlib.suppress(ObjectMissing):  # the other writer deleted what both have just written
                put(store, NAME, *payload)
            store.delete("state", NAME)

    def read() -> bool:
        """Whether both outcomes have been seen."""
        try:
            assert list(store.parts("state", NAME)) == payload
            outcomes.add("whole")
        except ObjectMissing:
            outcomes.add("absent")
        return outcomes == {"whole", "absent"}

    with ThreadPoolExecutor(2) as pool:
        writers = [pool.submit(write) for _ in range(2)]
        try:
            wait_until(read)
            for _ in range(100):
                read()
        finally:
            stop.set()
        for writer in writers:
            writer.result()
    store.delete("state", NAME)
    assert store.usage().bytes == 0
