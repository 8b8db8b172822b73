"""Connections to Redis or Valkey, and what their failures mean to the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import redis
from redis.backoff import ExponentialBackoff
from redis.retry import Retry

from cache_store.errors import StoreFull, StoreUnavailable

SCHEMES = ("redis", "rediss", "unix")

# A part arrives in few reads; the client's own choice is 32 KiB.
READ_BYTES = 1 << 20


def check_url(url: str) -> str:
    """The URL itself; ValueError unless it is one of redis://, rediss://, unix://. Never repeats the URL."""
    try:
        parts = urlsplit(url)
        port_is_fine = parts.port is None or parts.port > 0
    except ValueError as error:
        raise ValueError(f"the Redis URL has no valid host and port ({error})") from None
    if parts.scheme not in SCHEMES:
        allowed = ", ".join(f"{scheme}://" for scheme in SCHEMES)
        raise ValueError(f"the scheme of the Redis URL is {parts.scheme!r}; allowed are {allowed}")
    if not port_is_fine or not (parts.path if parts.scheme == "unix" else parts.hostname):
        raise ValueError("the Redis URL names no server")
    return url


def connect(url: str, *, timeout_seconds: float = 30.0) -> redis.Redis:
    """A client for `url` that returns bytes. It connects on first use, and again after a failure.

    `timeout_seconds` is how long one reply may stay away. Raises ValueError for a bad URL.
    """
    return redis.Redis.from_url(
        check_url(url),
        decode_responses=False,
        socket_timeout=timeout_seconds,
        socket_connect_timeout=5.0,
        socket_read_size=READ_BYTES,
        health_check_interval=30,
        # A lost connection is tried again at once; a reply that stays away is not waited for several times.
        retry=Retry(ExponentialBackoff(cap=0.5, base=0.05), 3, supported_errors=(redis.ConnectionError,)),
    )


def describe(client: redis.Redis) -> str:
    """Where the client connects to, fit for a message: host and port, or a socket's path; no password."""
    options = client.get_connection_kwargs()
    if "path" in options:
        return str(options["path"])
    return f"{options.get('host', 'localhost')}:{options.get('port', 6379)}"


@contextmanager
def redis_errors(client: redis.Redis) -> Iterator[None]:
    """Turns the client's exceptions into those of `cache_store.errors`.

    Whatever interrupts an exchange (a time-out, a cancelled thread, Ctrl-C) may leave a connection with a
    reply still to come, which the next command would take for its own. Idle connections are closed then.
    """
    try:
        yield
    except redis.ResponseError as error:
        raise _refused(client, error) from error
    except redis.RedisError as error:
        client.connection_pool.disconnect(inuse_connections=False)
        raise StoreUnavailable(
            f"The cache store at {describe(client)} cannot be reached: {_one_line(error)}"
        ) from error
    except BaseException:
        client.connection_pool.disconnect(inuse_connections=False)
        raise


def _refused(client: redis.Redis, error: redis.ResponseError) -> StoreFull | StoreUnavailable:
    if isinstance(error, redis.OutOfMemoryError) or "-OOM" in str(error) or str(error).startswith("OOM"):
        return StoreFull(
            f"The cache store at {describe(client)} has reached its memory limit (maxmemory); "
            "delete stored states or give it more memory."
        )
    return StoreUnavailable(f"The cache store at {describe(client)} refused a command: {_one_line(error)}")


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
