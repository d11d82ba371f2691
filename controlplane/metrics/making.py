"""Creation of metrics, with the program's prefix.

Label values come from fixed sets, so that callers and hosts cannot grow a metric. Names of
accounts and applications are labels in `live.py` alone, where they are bounded.
"""

import math
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Metric, disable_created_metrics
from prometheus_client.core import GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

PREFIX = "tiltyard_controlplane"

# `_created` samples would double the number of series.
disable_created_metrics()  # type: ignore[no-untyped-call]

CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of network calls, in seconds."""

Registry = CollectorRegistry | None


class Observations:
    """Counts per bucket and a sum, as plain numbers: only one thread may observe."""

    def __init__(self, bounds: Sequence[float]) -> None:
        self._bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.sum = 0.0

    def observe(self, value: float) -> None:
        """Count a value in the first bucket that includes it."""
        self.counts[bisect_left(self._bounds, value)] += 1
        self.sum += value


class Histogram(Collector):
    """A histogram that is formatted at each scrape; Prometheus's takes locks for each value."""

    def __init__(
        self, name: str, text: str, labels: Sequence[str], bounds: Sequence[float]
    ) -> None:
        self._about = name, text, labels
        self._bounds = bounds
        self._by_labels = defaultdict[tuple[str, ...], Observations](lambda: Observations(bounds))

    def labels(self, *values: str) -> Observations:
        """Return the observations with these label values."""
        return self._by_labels[values]

    def collect(self) -> Iterator[Metric]:
        """Format for a scrape."""
        name, text, labels = self._about
        family = HistogramMetricFamily(name, text, labels=labels)
        names = [floatToGoString(bound) for bound in (*self._bounds, math.inf)]  # type: ignore[no-untyped-call]
        for values, each in list(self._by_labels.items()):
            buckets = list(zip(names, accumulate(each.counts), strict=True))
            family.add_metric(values, buckets, each.sum)
        yield family


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
        made = Histogram(f"{PREFIX}_{name}", text, labels, buckets)
        if self._registry is not None:
            self._registry.register(made)
        return made


def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Make a gauge with these values by label, for one scrape."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
