"""Parses the bound ports of one session, and the report of its end. Pure."""

from collections.abc import Iterable

from google.protobuf.duration_pb2 import Duration

from controlplane.agent_rpc.wire import (
    END_REASON_OF,
    PROTOCOL_NAMES,
    STATE_OF,
    check_format,
    time_in,
)
from controlplane.domain.hosts.session_report import SessionReport
from tiltyard.agent.v1 import agent_pb2
from tiltyard.agent.wire import LIMITS
from tiltyard.ends import (
    BoundPort,
    FailedRun,
    Limit,
    Moment,
    PortBindings,
    StopResult,
    UnboundPort,
)

_LIMITS = {number: limit for limit, number in LIMITS.items()}


def bindings_in(response: agent_pb2.GetBindingsResponse) -> PortBindings:
    """Parse the bound and unbound ports of a session. Raises as `session_in`."""
    return PortBindings(
        tuple(
            UnboundPort(
                PROTOCOL_NAMES[port.protocol], port.container_port, port.own_port, port.loopback
            )
            for port in response.unbound
        ),
        tuple(BoundPort(PROTOCOL_NAMES[port.protocol], port.port) for port in response.others),
    )


def report_in(response: agent_pb2.GetReportResponse) -> SessionReport:
    """Parse a session report. Raises as `session_in`."""
    report = response.report
    check_format("report", report.format)
    known = report.HasField
    return SessionReport(
        state=STATE_OF[report.state],
        end_reason=END_REASON_OF[report.end_reason],
        detail=report.detail,
        create_time=time_in(report.create_time, "Report.create_time"),
        end_time=time_in(report.end_time, "Report.end_time"),
        exit_code=report.exit_code if known("exit_code") else None,
        signal=report.signal if known("signal") else None,
        oom_killed=report.oom_killed,
        limits_met=_limits_in(report.limits_met),
        restart_count=report.restart_count,
        failed_runs=tuple(map(_failed_run_in, report.failed_runs)),
        timeline=tuple(
            Moment(STATE_OF[moment.state], time_in(moment.time, "Moment.time"))
            for moment in report.timeline
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


def _limits_in(limits: Iterable[agent_pb2.Limit.ValueType]) -> tuple[Limit, ...]:
    """Convert limits, without those that a newer agent may have."""
    return tuple(_LIMITS[limit] for limit in limits if limit in _LIMITS)


def _failed_run_in(run: agent_pb2.FailedRun) -> FailedRun:
    return FailedRun(
        start_time=time_in(run.start_time, "FailedRun.start_time")
        if run.HasField("start_time")
        else None,
        end_time=time_in(run.end_time, "FailedRun.end_time"),
        exit_code=run.exit_code if run.HasField("exit_code") else None,
        oom_killed=run.oom_killed,
        limits_met=_limits_in(run.limits_met),
        delay=_seconds(run.restart_delay),
    )


def _seconds(duration: Duration) -> float:
    return duration.ToNanoseconds() / 10**9
