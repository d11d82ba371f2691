"""How instruments are made: with the program's prefix, in a registry or in none.

Labels have values from fixed sets, so that no metric grows with what callers or hosts send: names
of accounts and applications are labels in `live.py` alone, where they are bounded.
"""

from collections.abc import Mapping
from typing import Any

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Metric,
    disable_created_metrics,
)
from prometheus_client.core import GaugeMetricFamily

PREFIX = "tiltyard_controlplane"

# They would double the series, to say when each began.
disable_created_metrics()  # type: ignore[no-untyped-call]

CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Bounds of what crosses a network, in seconds."""

Registry = CollectorRegistry | None


class Maker:
    """Makes instruments with the prefix of the program."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter."""
        return Counter(f"{PREFIX}_{name}", text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make a gauge."""
        return Gauge(f"{PREFIX}_{name}", text, labels, registry=self._registry)

    def histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = CALLS
    ) -> Histogram:
        """Make a histogram with these upper bounds."""
        return Histogram(
            f"{PREFIX}_{name}", text, labels, registry=self._registry, buckets=buckets
        )


def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Make a family of values by their labels, for one scrape."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
