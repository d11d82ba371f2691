"""Creation of metrics, with the prefix of a program or of a part of it.

Label values come from fixed sets, so that callers and hosts cannot grow a metric.
"""

from prometheus_client import CollectorRegistry, Gauge

from tiltyard.runtime.metrics.instruments import Counter, Histogram

CALLS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Buckets of network calls, in seconds."""

Registry = CollectorRegistry | None


class MetricFactory:
    """Creates metrics whose names begin with a prefix."""

    def __init__(self, prefix: str, registry: Registry) -> None:
        self._prefix = prefix
        self._registry = registry

    def counter(self, name: str, text: str, *labels: str) -> Counter:
        """Make a counter."""
        return Counter(self._named(name), text, labels, registry=self._registry)

    def gauge(self, name: str, text: str, *labels: str) -> Gauge:
        """Make a gauge."""
        return Gauge(self._named(name), text, labels, registry=self._registry)

    def histogram(
        self, name: str, text: str, *labels: str, buckets: tuple[float, ...] = CALLS
    ) -> Histogram:
        """Make a histogram with these upper bounds."""
        return Histogram(self._named(name), text, labels, registry=self._registry, buckets=buckets)

    def _named(self, name: str) -> str:
        return f"{self._prefix}_{name}"
