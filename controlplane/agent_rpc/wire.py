"""Conversion between the protobuf messages of the agent contract and domain values. Pure."""

from collections.abc import Iterable
from functools import lru_cache
from sys import intern

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from controlplane.domain.contract import (
    Claim,
    Drain,
    HostSession,
    Port,
    RegistryLogin,
    SessionReport,
    StandbyOrder,
)
from tiltyard.agent.bounds import MOST_BYTES
from tiltyard.agent.checked import OutOfBoundsError, items, number, span, text
from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import (
    END_REASONS,
    NETWORK_MODES,
    PROTOCOLS,
    STATES,
    duration_to_proto,
    identity_from_proto,
    identity_to_proto,
    interned,
    resources_to_proto,
)
from tiltyard.contract import FORMAT, FailedRun, Moment, Resources, SessionSpec, StopResult
from tiltyard.runtime.clock import from_ms, to_ms

_PROTOCOL_NAMES = {number: protocol for protocol, number in PROTOCOLS.items()}
_STATES = {number: state for state, number in STATES.items()}
_END_REASONS = {number: reason for reason, number in END_REASONS.items()}
_shared = lru_cache(maxsize=1024)(Resources)  # Shared by the sessions of an application
_port = lru_cache(maxsize=16384)(Port)  # Shared by hosts with the same range of ports


class NewerFormatError(ValueError):
    """A newer agent has sent a format that this program cannot read."""

    def __init__(self, what: str, number: int) -> None:
        super().__init__(
            f"its {what} has format {number}, and this control plane reads up to {FORMAT}:"
            " control planes are upgraded before agents"
        )


def spec_out(spec: SessionSpec) -> agent_pb2.SessionSpec:
    """Convert a session spec."""
    return agent_pb2.SessionSpec(
        format=FORMAT,
        identity=identity_to_proto(spec.identity),
        image=spec.image,
        args=spec.args,
        env=dict(spec.env),
        restart=spec.restart,
        ttl=duration_to_proto(spec.ttl),
        network_mode=NETWORK_MODES[spec.network_mode],
        reservation=resources_to_proto(spec.reservation),
        limits=resources_to_proto(spec.limits),
        ports=[
            agent_pb2.PortRequest(
                container_port=port.container,
                protocol=PROTOCOLS[port.protocol],
                tls=port.tls,
                pinned_host_port=port.pinned,
            )
            for port in spec.ports
        ],
        disk_bytes=spec.disk_bytes,
        stop_signal=spec.stop_signal,
        stop_grace=duration_to_proto(spec.stop_grace or None),
    )


def claim_out(claim: Claim) -> agent_pb2.Claim:
    """Convert a claim."""
    return agent_pb2.Claim(
        internal_id=claim.internal_id,
        identity=identity_to_proto(claim.identity),
        ttl=duration_to_proto(claim.ttl),
        request_json=claim.request,
        again=claim.again,
    )


def standby_order_out(order: StandbyOrder) -> agent_pb2.SetWarmPoolRequest:
    """Convert a warm pool order."""
    return agent_pb2.SetWarmPoolRequest(
        revision=order.revision,
        pool_id=order.pool_id,
        size=order.size,
        spec=None if order.spec is None else spec_out(order.spec),
        claim_signal=order.claim_signal,
    )


def shapes_out(shapes: Iterable[SessionSpec]) -> agent_pb2.SetShapesRequest:
    """Convert an order of prepared containers."""
    return agent_pb2.SetShapesRequest(shapes=map(spec_out, shapes))


def credentials_out(login: RegistryLogin | None) -> agent_pb2.RegistryCredentials | None:
    """Convert a registry login."""
    if login is None:
        return None
    return agent_pb2.RegistryCredentials(username=login.username, password=login.password)


def session_in(session: agent_pb2.Session) -> HostSession:
    """Parse a session; strings that many sessions share are interned.

    Raises:
        NewerFormatError: A newer agent has sent it.
        OutOfBoundsError: A field is out of its bounds.
    """
    check_format("session", session.format)
    size = session.ByteSize()
    if size > MOST_BYTES["Session"]:
        raise OutOfBoundsError("Session")
    known = session.HasField
    ended = session.end_reason != agent_pb2.END_REASON_UNSPECIFIED
    return HostSession(
        internal_id=text(session.internal_id, "Session.internal_id"),
        identity=identity_from_proto(session.identity),
        image=intern(text(session.image, "Session.image")),
        state=_STATES[session.state],
        ports=tuple(map(_port_in, items(session.ports, "Session.ports"))),
        reservation=resources_in(session.reservation),
        injected_env=interned(items(session.injected_env, "Session.injected_env")),
        create_time=_time_in(span(session.create_time, "Session.create_time")),
        end_time=(
            _time_in(span(session.end_time, "Session.end_time")) if known("end_time") else None
        ),
        exit_code=session.exit_code if known("exit_code") else None,
        end_reason=_END_REASONS[session.end_reason] if ended else None,
        detail=text(session.detail, "Session.detail"),
        sequence=number(session.sequence, "Session.sequence"),
        host=intern(text(session.host, "Session.host")),
        ready_time=(
            _time_in(span(session.ready_time, "Session.ready_time"))
            if known("ready_time")
            else None
        ),
        warm_pool=text(session.warm_pool, "Session.warm_pool"),
        warm_pool_revision=number(session.warm_pool_revision, "Session.warm_pool_revision"),
        in_doubt=session.in_doubt,
        size=size,
    )


def _port_in(port: agent_pb2.Port) -> Port:
    return _port(
        number(port.container_port, "Port.container_port"),
        _PROTOCOL_NAMES[port.protocol],
        number(port.host_port, "Port.host_port"),
        port.tls,
    )


def report_in(response: agent_pb2.GetReportResponse) -> SessionReport:
    """Parse a session report. Raises as `session_in`."""
    report = response.report
    check_format("report", report.format)
    known = report.HasField
    return SessionReport(
        state=_STATES[report.state],
        end_reason=_END_REASONS[report.end_reason],
        detail=report.detail,
        create_time=_time_in(report.create_time),
        end_time=_time_in(report.end_time),
        exit_code=report.exit_code if known("exit_code") else None,
        signal=report.signal if known("signal") else None,
        oom_killed=report.oom_killed,
        restart_count=report.restart_count,
        failed_runs=tuple(map(_failed_run_in, report.failed_runs)),
        timeline=tuple(
            Moment(_STATES[moment.state], _time_in(moment.time)) for moment in report.timeline
        ),
        cpu_seconds=_seconds(report.cpu_time) if known("cpu_time") else None,
        peak_memory_bytes=report.peak_memory_bytes if known("peak_memory_bytes") else None,
        prepared=report.prepared,
        stop=_stop_in(report.stop) if known("stop") else None,
        log=response.log if response.HasField("log") else None,
        log_truncated=response.log_truncated,
        log_damaged=response.log_damaged,
    )


def _stop_in(stop: agent_pb2.StopResult) -> StopResult:
    return StopResult(
        signal=stop.signal,
        delivered=stop.delivered if stop.HasField("delivered") else None,
        forced=stop.forced,
        killed=tuple(stop.killed),
    )


def _failed_run_in(run: agent_pb2.FailedRun) -> FailedRun:
    return FailedRun(
        start_time=_time_in(run.start_time) if run.HasField("start_time") else None,
        end_time=_time_in(run.end_time),
        exit_code=run.exit_code if run.HasField("exit_code") else None,
        oom_killed=run.oom_killed,
        delay=_seconds(run.restart_delay),
    )


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 10**9


def _time_in(time: Timestamp) -> float:
    return from_ms(time.seconds * 1000 + time.nanos // 1_000_000)


def resources_in(resources: agent_pb2.Resources) -> Resources:
    """Parse resources. Raises OutOfBoundsError."""
    return _shared(
        number(resources.nano_cpus, "Resources.nano_cpus"),
        number(resources.memory_bytes, "Resources.memory_bytes"),
        number(resources.gpus, "Resources.gpus"),
    )


def check_format(what: str, number: int) -> None:
    """Raise NewerFormatError for a format beyond FORMAT, ValueError for a missing one."""
    if number > FORMAT:
        raise NewerFormatError(what, number)
    if number == 0:
        raise ValueError(f"a {what} without a format")


def drain_out(drain: Drain, now: float) -> agent_pb2.SetDrainRequest:
    """Convert a drain order; the host counts the remaining time by its own clock."""
    request = agent_pb2.SetDrainRequest(revision=drain.revision, draining=drain.draining)
    if drain.deadline is not None:
        request.deadline_time.FromMilliseconds(to_ms(drain.deadline))
        request.remaining.FromMilliseconds(max(0, to_ms(drain.deadline) - to_ms(now)))
    return request
