"""Creation of metrics, with the program's prefix.

Label values come from fixed sets, so that callers and hosts cannot grow a metric. Names of
accounts and applications are labels in `live.py` alone, where they are bounded.
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

# `_created` samples would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of network calls, in seconds."""

Registry = CollectorRegistry | None


class Maker:
    """Creates metrics with the program's prefix."""

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
    """Make a gauge with these values by label, for one scrape."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
