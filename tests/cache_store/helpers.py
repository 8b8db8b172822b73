"""What several tests of the store need."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Iterator

import redis

from cache_store.documents import write_document
from cache_store.manifest import Manifest
from cache_store.store import CacheStore


class NeverRead:
    """Parts that nobody may ask for."""

    def __iter__(self) -> Iterator[bytes]:
        raise AssertionError("the parts were asked for")


def name_of(text: str) -> str:
    """A valid object name."""
    return hashlib.sha256(text.encode()).hexdigest()


def put(store: CacheStore, name: str, *parts: bytes, kind: str = "state", ttl: int | None = None) -> Manifest:
    """Stores an object of these parts, reserving exactly their bytes."""
    return store.put(kind, name, parts, size=sum(map(len, parts)), ttl=ttl)


def store_document(store: CacheStore, text: str) -> Manifest:
    """Stores a text as a document."""
    data = text.encode()
    return write_document(store, name_of(text), [data], size=len(data))


def part_key(store: CacheStore, manifest: Manifest, index: int) -> str:
    return store.keys.part(manifest.kind, manifest.name, manifest.generation, index)


def keys_of(client: redis.Redis) -> set[str]:
    """All keys of the server, scripts and connections aside."""
    return {key.decode() for key in client.scan_iter(count=1000)}


def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Returns once the condition holds; fails when it does not within `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come true in time"
        time.sleep(0.01)
