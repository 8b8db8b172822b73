"""Whether an orchestrator really consumes: a process may look alive while its queue is not read any more."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import redis

from cache_store.connection import connect
from orchestrator import job_keys
from orchestrator.connection import job_store_errors
from orchestrator.settings import Settings

_LIFE_SECONDS = 15.0


class Consumption:
    """Counts the tasks of this process. Safe to share between threads."""

    def __init__(self, concurrency: int) -> None:
        self._concurrency = concurrency
        self._lock = threading.Lock()
        self._running = 0
        self._idle_since: float | None = None

    @contextmanager
    def task(self) -> Iterator[None]:
        """Around each task that has been taken from a queue."""
        with self._lock:
            self._running += 1
            self._idle_since = None
        try:
            yield
        finally:
            with self._lock:
                self._running -= 1

    def neglected(self, waiting: int) -> float:
        """For how many seconds messages have waited (`waiting` of them now) though a thread was free and
        nothing was taken. To be called regularly."""
        with self._lock:
            if waiting == 0 or self._running >= self._concurrency:
                self._idle_since = None
                return 0.0
            now = time.monotonic()
            if self._idle_since is None:
                self._idle_since = now
            return now - self._idle_since


def announce(client: redis.Redis, process: str) -> None:
    """Says that an orchestrator consumes; to be repeated well within 15 seconds."""
    with job_store_errors(client), client.pipeline(transaction=True) as pipe:
        pipe.zremrangebyscore(job_keys.PROCESSES, "-inf", time.time())
        pipe.zadd(job_keys.PROCESSES, {process: time.time() + _LIFE_SECONDS})
        pipe.execute()


def withdraw(client: redis.Redis, process: str) -> None:
    with job_store_errors(client):
        client.zrem(job_keys.PROCESSES, process)


def processes(client: redis.Redis) -> list[str]:
    """The orchestrators ("host:pid") that consume now. Raises JobStoreUnavailable."""
    with job_store_errors(client):
        found: Any = client.zrangebyscore(job_keys.PROCESSES, time.time(), "+inf")
    return [name.decode() for name in found]


def consuming(settings: Settings, host: str | None = None) -> bool:
    """Whether an orchestrator on this host consumes: the liveness check of a container.

    Raises JobStoreUnavailable when Redis cannot be asked.
    """
    name = socket.gethostname() if host is None else host
    with connect(settings.redis_url) as client:
        return any(process.rpartition(":")[0] == name for process in processes(client))
