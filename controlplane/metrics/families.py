"""Families of gauges that are made for one scrape."""

from collections.abc import Mapping
from typing import Any

from prometheus_client import Metric
from prometheus_client.core import GaugeMetricFamily

from controlplane.metrics.making import PREFIX

Place = tuple[str, str]
"""A region and a node pool."""

PLACE = ("region", "node_pool")


def gauge(name: str, text: str, labels: tuple[str, ...], values: Mapping[Any, float]) -> Metric:
    """Make a family of values by their labels."""
    family = GaugeMetricFamily(f"{PREFIX}_{name}", text, labels=labels)
    for key, value in values.items():
        family.add_metric([str(part) for part in key], value)
    return family
