"""How a worker stands at the moment of being asked."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from kernel_worker.readiness import Readiness
from kernel_worker.stages.desk import Desk

_P = "docexpress_worker_"


class Gauges(Collector):
    """Holds nothing; safe to ask from any thread."""

    def __init__(self, desk: Desk, readiness: Readiness) -> None:
        self._desk, self._readiness = desk, readiness

    def collect(self) -> Iterator[Metric]:
        desk, hot = self._desk, self._desk.hot
        load, capacity = desk.slots.load, desk.slots.capacity
        for name, text, value in (
            ("ready", "Whether the device passed its last probe, a small kernel.", self._readiness.ready),
            ("draining", "Whether it takes no new work.", desk.slots.draining),
            ("capacity_calls", "Calls that are computed at once.", capacity),
            ("running_calls", "Calls that are computed now.", min(load, capacity)),
            ("waiting_calls", "Calls that wait for their turn.", max(0, load - capacity)),
            ("ingesting_calls", "Calls that tokenize, or wait to.", desk.readers.load),
            ("decoding_calls", "Calls that write, or wait to.", desk.writers.load),
            ("batch_rows", "Texts in the batch now: each step gives all of them a token.", len(desk.batcher)),
            ("batch_capacity_rows", "Texts that fit into the batch.", desk.batcher.rows),
            ("leases", "Prefilled segments that wait to be compressed.", len(desk.leases)),
            ("lease_bytes", "Bytes that they hold.", desk.leases.nbytes),
            ("hot_states", "States kept on the device.", len(hot.names())),
        ):
            yield GaugeMetricFamily(_P + name, text, value=float(value))
        lookups = CounterMetricFamily(
            f"{_P}hot_state_lookups",
            "States that were needed: on the device already or not.",
            labels=["result"],
        )
        lookups.add_metric(["hit"], hot.hits)
        lookups.add_metric(["miss"], hot.misses)
        yield lookups
        yield from self._device()

    def _device(self) -> Iterator[Metric]:
        loaded = self._desk.loaded
        facts = {"model": loaded.name, "device": str(loaded.device), "version": self._desk.version}
        yield InfoMetricFamily("docexpress_worker", "What this worker serves.", value=facts)
        if loaded.device.type == "cuda":
            used = torch.cuda.memory_allocated(loaded.device)
            yield GaugeMetricFamily(f"{_P}device_memory_bytes", "Bytes of tensors on the device.", value=used)
