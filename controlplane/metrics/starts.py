"""Metrics of POST /session: durations and refusals."""

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.domain.errors import (
    ImageCannotRunError,
    NoCapacityCause,
    NoCapacityError,
    StoreError,
    TiltyardError,
)
from controlplane.domain.sessions.start_timing import StartTiming
from controlplane.metrics.making import metric_factory
from tiltyard.runtime.metrics.making import Registry

_SECONDS = (0.01, 0.025, 0.05, 0.1, 0.2, 0.35, 0.5, 0.75, 1, 1.5, 2, 3, 4, 6, 8, 15, 60)
"""A claim takes about 20 ms, a cold start half a second, at most `start_timeout`."""


class StartMetrics:
    """Metrics of session starts."""

    def __init__(self, registry: Registry = None) -> None:
        make = metric_factory(registry)
        self._seconds = make.histogram(
            "start_duration_seconds",
            "Duration of starts; kind is warm if a standby was claimed, none if nothing started.",
            "kind",
            "result",
            buckets=_SECONDS,
        )
        self._phases = make.histogram(
            "start_phase_duration_seconds",
            "Duration of each phase of successful starts.",
            "kind",
            "phase",
            buckets=_SECONDS,
        )
        self._refusals = make.counter(
            "start_refusals_total", "Failed or rejected starts, by reason.", "reason"
        )
        for cause in NoCapacityCause:
            self._refusals.labels(cause.value)
        self.failures = make.counter(
            "start_failures_total",
            "Starts that failed on a host for another reason than capacity, and made it avoided.",
            "region",
            "node_pool",
            "reason",
        )
        self.in_progress = 0
        in_progress = make.gauge("starts_in_progress", "Starts in progress.")
        in_progress.set_function(lambda: self.in_progress)
        self.ready_wait = make.histogram(
            "start_ready_wait_duration_seconds",
            "Seconds that a start with Prefer: wait=ready waited for bound ports, from the start"
            " of its session.",
            "result",
            buckets=_SECONDS,
        )

    @contextmanager
    def counted(self, timing: StartTiming) -> Iterator[None]:
        """Count and time a start."""
        self.in_progress += 1
        try:
            with self.refusals():
                yield
        except BaseException:
            self._seconds.labels("none", "refused").observe(timing.total())
            raise
        finally:
            self.in_progress -= 1
        kind = timing.kind
        self._seconds.labels(kind, "started").observe(timing.total())
        for phase, seconds in timing.seconds.items():
            self._phases.labels(kind, phase).observe(seconds)

    @contextmanager
    def refusals(self) -> Iterator[None]:
        """Count an error as the refusal of a start."""
        try:
            yield
        except Exception as error:
            self._refusals.labels(_reason(error)).inc()
            raise


def _reason(error: Exception) -> str:
    if isinstance(error, NoCapacityError):
        return error.cause.value
    if isinstance(error, ImageCannotRunError):
        return "image_cannot_run"
    if isinstance(error, TiltyardError):
        return error.reason.name.lower()
    return "database_failed" if isinstance(error, StoreError) else "internal"
