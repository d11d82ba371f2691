"""All metrics of one control plane, in their own registry."""

import platform
from importlib.metadata import version

from prometheus_client import CollectorRegistry, GCCollector, ProcessCollector

from controlplane.metrics.agents import AgentCalls, FleetMetrics
from controlplane.metrics.events import EventMetrics
from controlplane.metrics.http import HttpMetrics
from controlplane.metrics.making import metric_factory
from controlplane.metrics.starts import StartMetrics
from controlplane.metrics.webhooks import WebhookMetrics
from controlplane.storage.engine.metrics import StoreMetrics

_VERSION = version("tiltyard")


class Metrics:
    """All metrics, grouped by the component that uses them."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()
        self.http = HttpMetrics(registry)
        self.events = EventMetrics(registry)
        self.starts = StartMetrics(registry)
        self.agent_calls = AgentCalls(registry)
        self.fleet = FleetMetrics(registry)
        self.store = StoreMetrics(registry)
        self.webhooks = WebhookMetrics(registry)
        self.loop_lag = metric_factory(registry).histogram(
            "event_loop_lag_seconds",
            "Seconds by which a timer of the event loop was late.",
            buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10),
        )
        self.internal_errors = metric_factory(registry).counter(
            "internal_errors_total", "Unexpected errors; the log has the traceback of each."
        )
        ProcessCollector(registry=registry)
        GCCollector(registry)
        build = metric_factory(registry).gauge(
            "build_info", "Always 1; the versions of Tiltyard and Python.", "version", "python"
        )
        build.labels(_VERSION, platform.python_version()).set(1)
