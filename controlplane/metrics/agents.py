"""Metrics of agents: calls and watch streams."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from time import perf_counter

from controlplane.domain.errors import (
    AgentExcessError,
    AgentNewerError,
    AgentRefusedError,
    AgentUnavailableError,
    StoreError,
)
from controlplane.metrics.making import metric_factory
from tiltyard.runtime.metrics.making import Registry


class AgentCalls:
    """Metrics of calls to agents."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self._calls = make.counter(
            "agent_calls_total",
            "Calls to agents; outcome is ok, the reason of a refusal, unavailable, newer, or left"
            " (a stream whose reader disconnected).",
            "method",
            "outcome",
        )
        self._seconds = make.histogram(
            "agent_call_duration_seconds",
            "Duration of calls to agents that do not stream, in seconds.",
            "method",
        )

    @contextmanager
    def counted(self, method: str, *, is_stream: bool) -> Iterator[None]:
        """Count a call and, unless it is a stream, time it."""
        outcome = "internal"
        began = perf_counter()
        try:
            yield
            outcome = "ok"
        except AgentRefusedError as error:
            outcome = error.agent_reason.value
            raise
        except AgentUnavailableError as error:
            outcome = "newer" if isinstance(error, AgentNewerError) else "unavailable"
            raise
        except (asyncio.CancelledError, GeneratorExit):
            outcome = "left"
            raise
        finally:
            self._calls.labels(method, outcome).inc()
            if not is_stream:
                self._seconds.labels(method).observe(perf_counter() - began)


_BREAKS = {
    TimeoutError: "timeout",
    AgentNewerError: "newer",
    AgentExcessError: "excess",
    AgentRefusedError: "refused",
    AgentUnavailableError: "unavailable",
    StoreError: "database_failed",
}
_INTERNAL = "internal"  # An unexpected error in handling messages of a host


class FleetMetrics:
    """Metrics of hosts' watch streams and certificates."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self.snapshot_seconds = make.histogram(
            "watch_snapshot_duration_seconds",
            "Duration of snapshots; each is a host that was synchronised again.",
        )
        self._breaks = make.counter(
            "watch_breaks_total", "Broken streams of hosts, by reason.", "reason"
        )
        for reason in (*_BREAKS.values(), _INTERNAL):
            self._breaks.labels(reason)
        self.renewals = make.counter(
            "certificate_renewals_total",
            "Attempts to renew a certificate of an agent or of the control plane.",
            "certificate",
            "result",
        )
        for certificate in ("agent", "controlplane"):
            for result in ("renewed", "failed"):
                self.renewals.labels(certificate, result)

    def broke(self, error: Exception) -> None:
        """Count a broken stream."""
        self._breaks.labels(_BREAKS.get(type(error), _INTERNAL)).inc()
