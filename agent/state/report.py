"""The report of an ended session. Pure.

A report is made of the session's record alone and never changes once the session has ended; the
end of the log, which stays where it is sealed, is read on request.
"""

from dataclasses import dataclass

from agent.domain.history import Run, Usage, signal_of
from agent.domain.session import (
    Moment,
    Session,
)
from agent.state.versioned_json import Envelope
from tiltyard.contract import EndReason, State


@dataclass(frozen=True, slots=True)
class Report:
    """How a session ended, how it came there, and what it used.

    Times are seconds of Unix time. `exit_code`, `signal` and `oom_killed` are of its last run;
    `failed_runs` are those that were to be followed by another, the newest RUNS_KEPT of them,
    and `restart_count` says how often that came about. `usage` is that of all runs.
    """

    internal_id: str
    state: State
    end_reason: EndReason
    detail: str
    create_time: float
    end_time: float
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    restart_count: int
    failed_runs: tuple[Run, ...]
    timeline: tuple[Moment, ...]
    usage: Usage


REPORTS = Envelope("report", Report)
"""The content of report.json."""


def report_of(session: Session) -> Report:
    """The report of a session; ValueError for one that has not ended."""
    if not session.state.ended or session.end_reason is None or session.end_time is None:
        raise ValueError(f"session {session.internal_id} has not ended")
    return Report(
        internal_id=session.internal_id,
        state=session.state,
        end_reason=session.end_reason,
        detail=session.detail,
        create_time=session.create_time,
        end_time=session.end_time,
        exit_code=session.exit_code,
        signal=signal_of(session.exit_code),
        oom_killed=session.oom_killed,
        restart_count=session.restart_count,
        failed_runs=session.failed_runs,
        timeline=session.timeline,
        usage=session.earlier_usage + session.run_usage,
    )


def encode_report(report: Report) -> bytes:
    """The content of report.json."""
    return REPORTS.encode(report, indent=1)


def decode_report(data: bytes) -> Report:
    """Read report.json; ValueError when it is damaged or of an unknown format."""
    return REPORTS.decode(data)
