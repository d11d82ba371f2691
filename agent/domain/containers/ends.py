"""The end of a run: which source counts for its time and its exit code. Pure.

| of the end | first | else | else | else |
|---|---|---|---|---|
| time | pidfd: this agent saw the process end | init's report | the engine | now |
| exit code | the engine, if it recorded the run undisturbed | init's report | unknown | |
| out of memory | the engine, or the kernel, which may each miss it | no | | |
| limits that it met | the kernel, or init's report | none | | |

An engine that was restarted at the end of a run, or missed it, makes exit codes up. A report comes
from inside the container, whose game may write what it likes: it counts only for its own session,
and only with a time within the run.
"""

from dataclasses import dataclass, field

from agent.domain.containers.engine import Container, ContainerStatus, ReportedEnd
from agent.domain.sessions.history import Usage, with_run
from agent.domain.sessions.session import Session
from tiltyard.contract import EndReason, State
from tiltyard.ends import FailedRun, Limit

_MAX_OWN_CODE = 128  # Codes above are those of signals
_OF_LIMITS = {
    Limit.PIDS: "it could not have another process or thread (limits.pids)",
    Limit.SHM: "its /dev/shm was full (limits.shm)",
}


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """The end of a process that this agent followed, and what its init reported.

    `time` is Unix time, None if the process may have ended earlier.
    """

    time: float | None
    reported: ReportedEnd | None = None


@dataclass(frozen=True, slots=True)
class Evidence:
    """The evidence of each source about the end of a run; times are Unix time.

    `seen`: when this agent saw the process end; None if it has ended unobserved. `engine`: the
    container afterwards, None if it is gone. `disturbed`: the engine was away between the end and
    its answer. `usage`: the kernel's counts in the run's control group.
    """

    seen: float | None = None
    reported: ReportedEnd | None = None
    engine: Container | None = None
    disturbed: bool = False
    usage: Usage = field(default_factory=Usage)

    @property
    def is_confirmed(self) -> bool:
        """True if the engine has the container and does not report it as running."""
        return self.engine is not None and not self.engine.is_running


@dataclass(frozen=True, slots=True)
class End:
    """The end of a run at a Unix time; `exit_code` is None if unknown.

    `limits_met`: limits that the run met, other than the one of memory.
    """

    time: float
    exit_code: int | None
    oom_killed: bool
    limits_met: tuple[Limit, ...] = ()


def end_of_run(evidence: Evidence, *, since: float, now: float) -> End:
    """The end of a run that began at `since`, as known at `now`, both in Unix time."""
    return End(
        _time(evidence, since, now),
        _exit_code(evidence),
        _oom_killed(evidence),
        tuple(limit for limit, is_met in _limits(evidence).items() if is_met),
    )


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


def _oom_killed(evidence: Evidence) -> bool:
    """Whether a process was killed: also one whose parent went on, with any exit code."""
    recorded = _recorded(evidence)
    if recorded is not None and recorded.oom_killed:
        return True
    return bool(evidence.usage.oom_kills)


def _limits(evidence: Evidence) -> dict[Limit, bool]:
    reported = () if evidence.reported is None else evidence.reported.limits_met
    return {
        Limit.PIDS: Limit.PIDS in reported or bool(evidence.usage.refused_pids),
        Limit.SHM: Limit.SHM in reported,
    }


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
    run = FailedRun(
        session.start_time, end.time, end.exit_code, end.oom_killed, delay, end.limits_met
    )
    return session.to(
        State.RESTARTING,
        at=end.time,
        process=None,
        exit_code=end.exit_code,
        oom_killed=end.oom_killed,
        limits_met=end.limits_met,
        restart_delay=delay,
        failed_runs=with_run(session.failed_runs, run),
    )


def ended(session: Session, found: Evidence, *, now: float) -> Session:
    """The ended session: dead, not exited, unless the engine confirms the end of its container."""
    end = end_of(session, found, now=now)
    is_known = found.engine is not None or found.reported is not None
    is_over_disk = session.stop_reason is EndReason.DISK
    limits_met = (*end.limits_met, Limit.DISK) if is_over_disk else end.limits_met
    return session.to(
        State.EXITED if found.is_confirmed else State.DEAD,
        at=end.time,
        process=None,
        end_time=end.time,
        exit_code=end.exit_code if is_known else session.exit_code,
        oom_killed=end.oom_killed if is_known else session.oom_killed,
        limits_met=limits_met if is_known else session.limits_met,
        end_reason=_reason(session, end, is_confirmed=found.is_confirmed),
        detail=_detail(session, end, found.engine),
    )


def _detail(session: Session, end: End, container: Container | None) -> str:
    if container is None:
        detail = session.detail or "its container vanished"
    elif container.is_running:
        detail = "the engine lists it as running, but its process has ended"
    else:
        detail = container.error
    if session.stop_reason is None and end.exit_code != 0:
        detail = detail or "; ".join(_OF_LIMITS[limit] for limit in end.limits_met)
    if session.stop_reason is EndReason.DISK:
        detail = detail or "it exceeded its disk limit"
    if session.stop_reason is EndReason.LOG:
        detail = detail or (
            "it printed more than session_log_lines or session_log_bytes allow, or most of an"
            " account beyond its share of host_log_lines or host_log_bytes"
        )
    if _may_lack_capabilities(session, end, container):
        detail = detail or "its image starts as root, and its application asks for no capabilities"
    if session.claim is not None and session.claim.signal_missed:
        detail = detail or f"its claim signal was not sent: {session.claim.signal_missed}"
    return detail


def _may_lack_capabilities(session: Session, end: End, container: Container | None) -> bool:
    """Return whether a root without capabilities has failed before its ports were bound."""
    if container is None or not container.starts_as_root or session.spec.capabilities:
        return False
    has_failed = end.exit_code is not None and 0 < end.exit_code <= _MAX_OWN_CODE
    return has_failed and session.stop_reason is None and session.ready_time is None


def _reason(session: Session, end: End, *, is_confirmed: bool) -> EndReason:
    if session.stop_reason is not None:
        return session.stop_reason
    if not is_confirmed:
        return EndReason.ENGINE_ERROR
    # A game that ends with 0 has survived the kill of its child.
    return EndReason.OOM if end.oom_killed and end.exit_code != 0 else EndReason.EXITED
