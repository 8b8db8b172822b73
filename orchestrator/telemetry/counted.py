"""The counts in Redis as metric families."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.utils import floatToGoString

from orchestrator.telemetry.counts import COUNTERS, HISTOGRAMS, SUM, Histogram


def counted_families(counts: Mapping[str, float]) -> Iterator[Metric]:
    """Every series of every metric, also those that stand at 0: a rate needs the value before the first."""
    for counter in COUNTERS:
        family = CounterMetricFamily(f"docexpress_{counter.name}", counter.help, labels=list(counter.labels))
        for values in counter.series():
            family.add_metric(values, counts.get(counter.field(*values), 0.0))
        yield family
    for histogram in HISTOGRAMS:
        shown = HistogramMetricFamily(
            f"docexpress_{histogram.name}", histogram.help, labels=list(histogram.labels)
        )
        for values in histogram.series():
            total = counts.get(histogram.field(*values, SUM), 0.0)
            shown.add_metric(values, buckets=_buckets(histogram, values, counts), sum_value=total)
        yield shown


def _buckets(
    histogram: Histogram, values: tuple[str, ...], counts: Mapping[str, float]
) -> list[tuple[str, float]]:
    """(upper end, observations up to it) of each bucket, the last one without an end."""
    ends = [*map(floatToGoString, histogram.bounds), "+Inf"]
    own = (counts.get(histogram.field(*values, str(bucket)), 0.0) for bucket in range(len(ends)))
    return list(zip(ends, itertools.accumulate(own), strict=True))
