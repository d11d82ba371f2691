"""GET /session/{id}/report: how a session ended."""

from collections.abc import Sequence
from typing import Annotated, Literal

from aiohttp import web
from pydantic import BeforeValidator, Field, ValidationInfo

from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Millis, Shown, at
from controlplane.domain.sessions.status import SessionStatus
from tiltyard.contract import EndReason, State
from tiltyard.ends import Limit, StopResult
from tiltyard.runtime.clock import to_ms


def _with_memory(others: Sequence[Limit], info: ValidationInfo) -> list[str]:
    """List the limit of memory before the others; `oom_killed` is validated first."""
    memory = ["memory"] if info.data["oom_killed"] else []
    return memory + [limit.value for limit in others]


LimitsMet = Annotated[
    list[Literal["memory", "pids", "disk", "shm"]], BeforeValidator(_with_memory)
]
"""Limits of a session: its memory, processes and threads, written files, and /dev/shm."""


class ShownFailedRun(Shown):
    """A failed run; the next was due `delaySeconds` after its end.

    `limitsMet`: the limits that it met; `oomKilled` is true if `memory` is among them.
    `mostPlayers`: the highest number of players at one time, null if unknown.
    """

    started: Millis | None = at("start_time")
    ended: Millis = at("end_time")
    exit_code: int | None
    oom_killed: bool
    limits_met: LimitsMet
    delay_seconds: float = at("delay")
    most_players: int | None = None


class ShownMoment(Shown):
    """A status, and when the session entered it."""

    status: SessionStatus = at("state")
    time: Millis


def _ended_status(state: State) -> SessionStatus:
    return SessionStatus.EXITED if state is State.EXITED else SessionStatus.DEAD


def _log_text(log: bytes) -> str:
    return log.decode("utf-8", "replace")


class Report(Shown):
    """How a session ended; times in milliseconds since the epoch, null where unknown.

    `prepared`: it began in a prepared container. `limitsMet`: the limits that its last run met;
    `oomKilled` is true if `memory` is among them. `mostPlayers`: the highest number of players at
    one time in its last run.
    """

    id: str = ""
    status: Annotated[
        Literal[SessionStatus.EXITED, SessionStatus.DEAD], BeforeValidator(_ended_status)
    ] = at("state")
    end_reason: Annotated[EndReason, Field(serialization_alias="end_reason")]
    detail: str
    created: Millis = at("create_time")
    ended: Millis = at("end_time")
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    limits_met: LimitsMet
    stop_signal: str | None = None
    signal_delivered: bool | None = None
    forced: bool = False
    killed: list[str] = Field(default_factory=list)
    restart_count: int
    failed_runs: list[ShownFailedRun]
    timeline: list[ShownMoment]
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    most_players: int = 0
    prepared: bool
    log: Annotated[str, BeforeValidator(_log_text)] | None
    log_truncated: bool
    log_damaged: bool


@operation()
async def get_report(request: web.Request) -> Answer[Report]:
    """Describe how a session ended, with its restarts, what it used and the end of its log.

    Available as long as the ended session is listed, even without its container.
    """
    sessions = services_of(request).sessions
    found = await sessions.get(caller_of(request), request.match_info["id"])
    report = await sessions.report(found)
    most = await sessions.most_players(found)
    failed_runs = [
        ShownFailedRun.show(run, most_players=most.earlier.get(to_ms(run.end_time)))
        for run in report.failed_runs
    ]
    return Answer(
        Report.show(
            report,
            id=found.session.id,
            most_players=most.last,
            failed_runs=failed_runs,
            **_of_stop(report.stop),
        )
    )


def _of_stop(stop: StopResult | None) -> dict[str, object]:
    if stop is None:
        return {}
    return {
        "stop_signal": stop.signal,
        "signal_delivered": stop.delivered,
        "forced": stop.forced,
        "killed": list(stop.killed),
    }
