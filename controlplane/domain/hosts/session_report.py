"""The report of an ended session, as its host sends it."""

from dataclasses import dataclass

from tiltyard.contract import EndReason, State
from tiltyard.ends import FailedRun, Limit, Moment, StopResult


@dataclass(frozen=True, slots=True)
class SessionReport:
    """The end of a session, its history, its use of resources, and the end of its log.

    `log` is None if the host does not have it; `log_truncated` if it is only the end of the log,
    `log_damaged` if the engine could not read a part of the log. `prepared`: it used a prepared
    container. `stop` is None if its last run ended by itself. `limits_met`: limits that its last
    run met, other than the one of memory.
    """

    state: State
    end_reason: EndReason
    detail: str
    create_time: float
    end_time: float
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    limits_met: tuple[Limit, ...]
    restart_count: int
    failed_runs: tuple[FailedRun, ...]
    timeline: tuple[Moment, ...]
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    prepared: bool
    stop: StopResult | None
    log: bytes | None
    log_truncated: bool
    log_damaged: bool
