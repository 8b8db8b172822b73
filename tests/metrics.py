"""What an exposition says, read as Prometheus reads it."""

from __future__ import annotations

from collections.abc import Mapping

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

Sample = tuple[str, frozenset[tuple[str, str]]]


class Exposition:
    """The samples of one scrape; asking for one that is not there raises KeyError."""

    def __init__(self, text: str) -> None:
        self.text = text
        self._samples: Mapping[Sample, float] = {
            (sample.name, frozenset(sample.labels.items())): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
        }

    @classmethod
    def of(cls, registry: CollectorRegistry) -> Exposition:
        return cls(generate_latest(registry).decode())

    def value(self, name: str, **labels: str) -> float:
        return self._samples[f"docexpress_{name}", frozenset(labels.items())]

    def names(self) -> set[str]:
        return {name for name, _ in self._samples}

    def labels(self) -> Mapping[str, set[str]]:
        """Every label with all its values."""
        found: dict[str, set[str]] = {}
        for _, pairs in self._samples:
            for label, value in pairs:
                found.setdefault(label, set()).add(value)
        return found
