"""The two Redis servers: whether they answer, their memory, and what they dropped, from their own INFO."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import redis
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

# Metric -> field of INFO, help.
_GAUGES = {
    "memory_bytes": ("used_memory", "Memory that the server uses."),
    "memory_limit_bytes": ("maxmemory", "The server's memory limit; 0 is none."),
    "clients": ("connected_clients", "Connections that are open."),
}
_COUNTERS = {
    "evicted_keys": ("evicted_keys", "Keys dropped for want of memory: 0 under noeviction."),
    "expired_keys": ("expired_keys", "Keys whose time was over."),
    "keyspace_hits": ("keyspace_hits", "Look-ups of any key that found it."),
    "keyspace_misses": ("keyspace_misses", "Look-ups of any key that did not find it."),
}
Infos = Mapping[str, Mapping[str, Any] | None]


def store_families(clients: Mapping[str, redis.Redis]) -> Iterator[Metric]:
    """One series for each store; of one that does not answer only that it does not."""
    infos = {store: _info(client) for store, client in clients.items()}
    up = GaugeMetricFamily("docexpress_store_up", "Whether the server answers.", labels=["store"])
    for store, info in infos.items():
        up.add_metric([store], float(info is not None))
    yield up
    for kind, metrics in ((GaugeMetricFamily, _GAUGES), (CounterMetricFamily, _COUNTERS)):
        for name, (field, text) in metrics.items():
            family = kind(f"docexpress_store_{name}", text, labels=["store"])
            for store, info in infos.items():
                if info is not None:
                    family.add_metric([store], float(info[field]))
            yield family


def _info(client: redis.Redis) -> Mapping[str, Any] | None:
    try:
        found: Any = client.info()
    except redis.RedisError:
        return None  # which is what `store_up` says
    return dict(found)
