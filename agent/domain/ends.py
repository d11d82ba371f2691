"""The end of a run: which source counts for its time and its exit code. Pure.

| of the end | first | else | else | else |
|---|---|---|---|---|
| time | pidfd: this agent saw the process end | init's report | the engine | now |
| exit code | the engine, if it recorded the run undisturbed | init's report | unknown | |
| out of memory | the engine, or the kernel with the exit code of SIGKILL | no | | |

An engine that was restarted at the end of a run, or missed it, makes exit codes up. A report comes
from inside the container, whose game may write what it likes: it counts only for its own session,
and only with a time within the run.
"""

from dataclasses import dataclass
from signal import SIGKILL

from agent.domain.engine import Container, ContainerStatus, ReportedEnd
from agent.domain.history import signal_of, with_run
from agent.domain.session import Session
from tiltyard.contract import EndReason, FailedRun, State


@dataclass(frozen=True, slots=True)
class Evidence:
    """What each source has about the end of a run; times are Unix time.

    `seen`: when this agent saw the process end; None if it has ended unobserved. `engine`: the
    container afterwards, None if it is gone. `disturbed`: the engine was away between the end and
    its answer. `oom_kills`: the kernel's count in the run's control group.
    """

    seen: float | None = None
    reported: ReportedEnd | None = None
    engine: Container | None = None
    disturbed: bool = False
    oom_kills: int = 0

    @property
    def is_confirmed(self) -> bool:
        """True if the engine has the container and does not report it as running."""
        return self.engine is not None and not self.engine.is_running


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run at a Unix time; `exit_code` is None if unknown."""

    time: float
    exit_code: int | None
    oom_killed: bool


def end_of_run(evidence: Evidence, *, since: float, now: float) -> End:
    """The end of a run that began at `since`, as known at `now`, both in Unix time."""
    exit_code = _exit_code(evidence)
    return End(_time(evidence, since, now), exit_code, _oom_killed(evidence, exit_code))


def _time(evidence: Evidence, since: float, now: float) -> float:
    reported = evidence.reported
    if evidence.seen is not None:
        return evidence.seen
    if reported is not None and since <= reported.time <= now:
        return reported.time
    recorded = _recorded(evidence)
    if recorded is not None and recorded.end_time is not None:
        return recorded.end_time
    return now


def _exit_code(evidence: Evidence) -> int | None:
    recorded = _recorded(evidence)
    if recorded is not None and recorded.exit_code is not None and not evidence.disturbed:
        return recorded.exit_code
    return None if evidence.reported is None else evidence.reported.exit_code


def _oom_killed(evidence: Evidence, exit_code: int | None) -> bool:
    """The engine and the kernel may each miss an OOM kill."""
    recorded = _recorded(evidence)
    if recorded is not None and recorded.oom_killed:
        return True
    return signal_of(exit_code) == SIGKILL and evidence.oom_kills > 0


def _recorded(evidence: Evidence) -> Container | None:
    """The container, if the engine reports that it has ended."""
    engine = evidence.engine
    return engine if engine is not None and engine.status is ContainerStatus.ENDED else None


def end_of(session: Session, evidence: Evidence, *, now: float) -> End:
    """The end of the session's run."""
    since = session.create_time if session.start_time is None else session.start_time
    return end_of_run(evidence, since=since, now=now)


def failed(session: Session, end: End, *, delay: float) -> Session:
    """The session after a failed run, to restart after `delay` seconds."""
    run = FailedRun(session.start_time, end.time, end.exit_code, end.oom_killed, delay)
    return session.to(
        State.RESTARTING,
        at=end.time,
        process=None,
        exit_code=end.exit_code,
        oom_killed=end.oom_killed,
        restart_delay=delay,
        failed_runs=with_run(session.failed_runs, run),
    )


def ended(session: Session, found: Evidence, *, now: float) -> Session:
    """The ended session: dead, not exited, unless the engine confirms the end of its container."""
    end = end_of(session, found, now=now)
    is_known = found.engine is not None or found.reported is not None
    return session.to(
        State.EXITED if found.is_confirmed else State.DEAD,
        at=end.time,
        process=None,
        end_time=end.time,
        exit_code=end.exit_code if is_known else session.exit_code,
        oom_killed=end.oom_killed if is_known else session.oom_killed,
        end_reason=_reason(session, end, is_confirmed=found.is_confirmed),
        detail=_detail(session, found.engine),
    )


def _detail(session: Session, container: Container | None) -> str:
    if container is None:
        detail = session.detail or "its container vanished"
    elif container.is_running:
        detail = "the engine lists it as running, but its process has ended"
    else:
        detail = container.error
    if session.stop_reason is EndReason.DISK:
        detail = detail or "it exceeded its disk limit"
    if session.stop_reason is EndReason.LOG:
        detail = detail or (
            "it printed more than session_log_lines or session_log_bytes allow, or most of an"
            " account beyond its share of host_log_lines or host_log_bytes"
        )
    if session.claim is not None and session.claim.signal_missed:
        detail = detail or f"its claim signal was not sent: {session.claim.signal_missed}"
    return detail


def _reason(session: Session, end: End, *, is_confirmed: bool) -> EndReason:
    if session.stop_reason is not None:
        return session.stop_reason
    if not is_confirmed:
        return EndReason.ENGINE_ERROR
    return EndReason.OOM if end.oom_killed else EndReason.EXITED
