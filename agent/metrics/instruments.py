"""Counters and histograms of events; label values never come from clients."""

import contextlib
import enum
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from prometheus_client import CollectorRegistry

from agent.domain.clock import HostClock
from agent.domain.kept.preparation import Discard
from agent.domain.sessions.deadlines import due_by
from agent.domain.sessions.session import Session
from agent.metrics.outcomes import OK, counted, reason_of, timed
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.metrics.instruments import Counter, Histogram

_STOP = "stop"
_CLAIM = "claim"
"""Purposes of the signals that the agent sends."""

_FAST = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)
"""Seconds; for operations that normally take milliseconds."""
_STARTS = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 10.0, 30.0, 60.0)
"""Seconds; a client allows a host 4 s, the engine has 60 s."""
_LATENESS = (0.01, 0.05, 0.1, 0.5, 1.0, 2.0, 5.0, 15.0, 60.0, 300.0, 3600.0)
"""Seconds; a lifetime is ended at once, or at the next start of the agent."""
_STOPS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0, 300.0)
"""Seconds; the default grace period is 10 s."""
_PULLS = (1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 600.0, 1800.0)
"""Seconds; a pull is canceled after half an hour."""


class Start(enum.Enum):
    """The kind of a start: in a new container, a prepared one, by a claim, or as a standby."""

    COLD = "cold"
    PREPARED = "prepared"
    WARM = "warm"
    STANDBY = "standby"


class Phase(enum.Enum):
    """The consecutive phases of a start.

    START lasts until the container waits, READY until all ports are bound.
    """

    QUEUE = "queue"
    CREATE = "create"
    START = "start"
    EXECUTE = "execute"
    READY = "ready"


class Metrics:
    """The counters and histograms of one agent, with their registry."""

    def __init__(self) -> None:
        self.registry = registry = CollectorRegistry()

        def counter(name: str, text: str, *labels: str) -> Counter:
            return Counter(f"tiltyard_agent_{name}", text, labels, registry=registry)

        def histogram(name: str, text: str, buckets: tuple[float, ...], *labels: str) -> Histogram:
            full = f"tiltyard_agent_{name}"
            return Histogram(full, text, labels, buckets=buckets, registry=registry)

        self._refusals = counter(
            "start_refusals_total",
            "Starts and claims that were refused or failed.",
            "kind",
            "reason",
        )
        self._starts = histogram(
            "start_duration_seconds",
            "Duration of starts and claims that succeeded.",
            _STARTS,
            "kind",
        )
        self._phases = histogram(
            "start_phase_duration_seconds",
            "Duration of each phase of a start.",
            _STARTS,
            "phase",
            "kind",
        )
        self._ends = counter("session_ends_total", "Sessions that ended.", "kind", "reason")
        self._restarts = counter("session_restarts_total", "Restarts of failed sessions.")
        self._stops = histogram(
            "session_stop_duration_seconds",
            "Time from the order to stop to the confirmed end.",
            _STOPS,
        )
        self._forced = counter(
            "session_stops_forced_total", "Sessions that SIGKILL ended, after their grace period."
        )
        self._missed = counter(
            "session_signals_missed_total",
            "Sessions that ended without a signal of the agent having reached their game.",
            "signal",
        )
        self._ttl_lateness = histogram(
            "ttl_lateness_seconds",
            "Time from the end of a lifetime to the order to stop.",
            _LATENESS,
        )
        self._pulls = counter("image_pulls_total", "Image pulls that ended.", "outcome")
        self._pull_seconds = histogram(
            "image_pull_duration_seconds", "Duration of image pulls that succeeded.", _PULLS
        )
        streamed = counter("streamed_bytes_total", "Bytes sent to callers.", "stream")
        self.log_bytes = streamed.labels("log")
        self.artifact_bytes = streamed.labels("artifact")
        self.sealed_bytes = counter("log_sealed_bytes_total", "Bytes of logs sealed on the host.")
        self._engine_calls = counter(
            "engine_calls_total", "Calls of the container engine.", "call", "outcome"
        )
        self._engine_seconds = histogram(
            "engine_call_duration_seconds",
            "Duration of engine calls, including their queue.",
            _FAST,
            "call",
        )
        self._rpcs = counter("rpcs_total", "gRPC calls that ended.", "method", "outcome")
        self._rpc_seconds = histogram(
            "rpc_duration_seconds", "Duration of gRPC calls that do not stream.", _FAST, "method"
        )
        self._passes = histogram(
            "reconcile_duration_seconds",
            "Duration of reconciliations of records with the engine.",
            _FAST,
        )
        self._failed_passes = counter(
            "reconcile_failures_total", "Failed reconciliations of records with the engine."
        )
        self.loop_lag = histogram(
            "event_loop_lag_seconds", "How late the event loop woke a timer.", _FAST
        )
        self.log_excesses = counter(
            "log_excesses_total",
            "Times that a session or account began to exceed the limits of output.",
            "of",
        )
        self.prepared_taken = counter(
            "prepared_taken_total", "Starts that took a prepared container."
        )
        self.prepared_missed = counter(
            "prepared_missed_total", "Starts that found no prepared container of their shape."
        )
        self.prepared_discarded = counter(
            "prepared_discarded_total",
            "Prepared containers that were removed without a session.",
            "reason",
        )
        self.internal_errors = counter(
            "internal_errors_total", "Unexpected errors; the log has the traceback of each."
        )
        self._begin_at_zero()

    def _begin_at_zero(self) -> None:
        """Create the series of alerts at 0, since a rate needs a first value."""
        for kind in ("session", "standby"):
            for ended in EndReason:
                self._ends.labels(kind, ended.value)
        for start in Start:
            self._starts.labels(start.value)
        for phase in Phase:
            self._phases.labels(phase.value, Start.COLD.value)
            if phase is not Phase.QUEUE:  # standbys do not queue for a slot
                self._phases.labels(phase.value, Start.STANDBY.value)
        for phase in (Phase.EXECUTE, Phase.READY):
            self._phases.labels(phase.value, Start.PREPARED.value)
        self._pulls.labels(OK)
        for why in Discard:
            self.prepared_discarded.labels(why.value)
        for signal in (_STOP, _CLAIM):
            self._missed.labels(signal)
        for who in ("session", "account"):
            self.log_excesses.labels(who)

    # -- sessions ------------------------------------------------------------------------------

    @contextlib.contextmanager
    def refusals(self, start: Start) -> Iterator[None]:
        """Count a failed start in the `with` body by its reason."""
        try:
            yield
        except Exception as error:
            self._refusals.labels(start.value, reason_of(error)).inc()
            raise

    @contextlib.contextmanager
    def starting(self, start: Start, clock: Clock) -> Iterator[None]:
        """Time a successful start in the `with` body, or count why it failed."""
        begun = clock.monotonic()
        with self.refusals(start):
            yield
        self._starts.labels(start.value).observe(clock.monotonic() - begun)

    @contextlib.contextmanager
    def phase(self, phase: Phase, start: Start, clock: Clock) -> Iterator[None]:
        """Time a phase of a start, unless it fails."""
        begun = clock.monotonic()
        yield
        self._phases.labels(phase.value, start.value).observe(clock.monotonic() - begun)

    def lifetime_over(self, session: Session, clock: HostClock) -> None:
        """Observe how late the end of a lifetime was noticed."""
        if session.deadline is not None:
            self._ttl_lateness.observe(clock.boottime() - due_by(clock, session.deadline))

    def session_changed(self, before: Session, after: Session) -> None:
        """Count ends and restarts; time stops and readiness."""
        if after.state.ended and not before.state.ended:
            kind = "standby" if after.is_standby else "session"
            reason = after.end_reason or EndReason.EXITED
            self._ends.labels(kind, reason.value).inc()
            if before.state is State.SHUTTINGDOWN:
                self._stops.observe(max(0.0, after.since - before.since))
            self._count_signals(after)
        if after.restart_count > before.restart_count:
            self._restarts.inc()
        if before.ready_time is None and after.ready_time is not None and not after.restart_count:
            took = max(0.0, after.ready_time - (after.start_time or after.ready_time))
            self._phases.labels(Phase.READY.value, start_of(after).value).observe(took)

    def _count_signals(self, ended: Session) -> None:
        """Count the results of the signals of a session."""
        stop = ended.stop
        if stop is not None and stop.forced:
            self._forced.inc()
        if stop is not None and stop.delivered is False:
            self._missed.labels(_STOP).inc()
        if ended.claim is not None and ended.claim.signal_missed:
            self._missed.labels(_CLAIM).inc()

    # -- the host ------------------------------------------------------------------------------

    def engine_call(self, call: str, clock: Clock) -> AbstractContextManager[None]:
        """Count and time a call of the engine."""
        return timed(self._engine_calls, self._engine_seconds, call, clock)

    def rpc(self, method: str, clock: Clock) -> AbstractContextManager[None]:
        """Count and time a gRPC call."""
        return timed(self._rpcs, self._rpc_seconds, method, clock)

    def stream(self, method: str) -> AbstractContextManager[None]:
        """Count a streaming gRPC call; its duration is up to the client."""
        return counted(self._rpcs, method)

    @contextlib.contextmanager
    def pull(self) -> Iterator[None]:
        """Count a pull, and time it if it succeeds."""
        begun = time.monotonic()
        with counted(self._pulls):
            yield
        self._pull_seconds.observe(time.monotonic() - begun)

    @contextlib.contextmanager
    def reconciling(self, clock: Clock) -> Iterator[None]:
        """Time a reconciliation pass, or count its failure."""
        begun = clock.monotonic()
        with self._failed_passes.count_exceptions():
            yield
        self._passes.observe(clock.monotonic() - begun)


def start_of(session: Session) -> Start:
    """Return how a session was started."""
    if session.standby is not None:
        return Start.STANDBY
    return Start.PREPARED if session.prepared else Start.COLD
