"""What a host reports of a session that has ended.

Points in time are milliseconds since the epoch; what is None, the host does not know.
"""

from dataclasses import dataclass

from tiltyard.contract import EndReason, State


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that was to be followed by another, `delay` seconds after its end."""

    start_ms: int | None
    end_ms: int
    exit_code: int | None
    oom_killed: bool
    delay: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A state, and since when the session was in it."""

    state: State
    time_ms: int


@dataclass(frozen=True, slots=True)
class SessionReport:
    """How a session ended, how it came there, what it used, and the end of its log.

    `log` is None when the host does not have it; `log_truncated` when it is longer than that.
    """

    state: State
    end_reason: EndReason
    detail: str
    create_ms: int
    end_ms: int
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    restart_count: int
    failed_runs: tuple[FailedRun, ...]
    timeline: tuple[Moment, ...]
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    log: bytes | None
    log_truncated: bool
