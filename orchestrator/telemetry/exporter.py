"""All of a deployment's metrics but those of a worker itself, read from Redis when Prometheus asks.

Nothing is held in a process, so every exporter of a deployment says the same: scrape one of them, or take the
maximum over them, never the sum.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from cache_store.connection import connect, redis_errors
from cache_store.errors import StoreError
from cache_store.keys import TenantKeys
from orchestrator import job_keys, liveness
from orchestrator.connection import job_store_errors
from orchestrator.errors import JobStoreUnavailable
from orchestrator.job_store import JobStore
from orchestrator.pool import Pool
from orchestrator.settings import Settings
from orchestrator.telemetry.counted import counted_families
from orchestrator.telemetry.pools import pool_families
from orchestrator.telemetry.queues import queue_families
from orchestrator.telemetry.stores import store_families

_log = logging.getLogger(__name__)
_ANSWER_SECONDS = 5.0  # Prometheus waits for 10


class Exporter(Collector):
    """Safe to share between threads. While a store is away, what stands in it is left out.

    `registry` serves it; `close` gives the connections back.
    """

    def __init__(self, settings: Settings) -> None:
        self._broker = connect(settings.redis_url, timeout_seconds=_ANSWER_SECONDS)
        self._cache = connect(settings.cache_url, timeout_seconds=_ANSWER_SECONDS)
        self._jobs = JobStore(self._broker, settings)
        self._pool = Pool(self._broker, settings)
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def collect(self) -> Iterator[Metric]:
        yield from store_families({"broker": self._broker, "cache": self._cache})
        for families in (self._from_broker, self._stored):
            try:
                yield from list(families())
            except (JobStoreUnavailable, StoreError) as error:
                _log.warning("metrics are incomplete: %s", error)

    def close(self) -> None:
        self._broker.close()
        self._cache.close()

    def _from_broker(self) -> Iterator[Metric]:
        yield from queue_families(self._broker, self._jobs.active())
        yield from pool_families(self._pool.members(), len(liveness.processes(self._broker)))
        with job_store_errors(self._broker):
            counts: Any = self._broker.hgetall(job_keys.COUNTS)
        yield from counted_families({field.decode(): float(value) for field, value in counts.items()})

    def _stored(self) -> Iterator[Metric]:
        """What all tenants that ever had a job keep; one sum, so that it tells of no tenant."""
        with job_store_errors(self._broker):
            tenants: Any = self._broker.smembers(job_keys.TENANTS)
        with redis_errors(self._cache), self._cache.pipeline(transaction=False) as pipe:
            for tenant in tenants:
                pipe.hget(TenantKeys(tenant.decode()).book, "total")
            total = sum(int(bytes_ or 0) for bytes_ in pipe.execute())
        yield GaugeMetricFamily(
            "docexpress_stored_bytes", "Bytes booked for stored states, tokens and documents.", value=total
        )
