"""Creation of metrics, with the program's prefix.

Names of accounts and applications are labels in `live.py` alone, where they are bounded.
"""

from collections.abc import Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from tiltyard.runtime.metrics.making import MetricFactory, Registry

PREFIX = "tiltyard_controlplane"


def metric_factory(registry: Registry) -> MetricFactory:
    """Return what creates metrics with the program's prefix."""
    return MetricFactory(PREFIX, registry)


def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Make a gauge with these values by label, for one scrape."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
