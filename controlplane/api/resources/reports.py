"""GET /session/{id}/report: how a session ended."""

from typing import Literal

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.domain.session_report import FailedRun, SessionReport
from controlplane.domain.status import SessionStatus
from tiltyard.contract import EndReason

LOG_BYTES = 2**17
"""Of a log in a report, whatever a host sends: six times as many in JSON are below 1 MiB."""


class ShownFailedRun(TypedDict):
    """A run that failed; `delaySeconds` after its end the next was to begin."""

    started: int | None
    ended: int
    exitCode: int | None
    oomKilled: bool
    delaySeconds: float


class ShownMoment(TypedDict):
    """A status, and since when the session had it."""

    status: SessionStatus
    time: int


class Report(TypedDict):
    """How a session ended; times in milliseconds since the epoch, null where unknown."""

    id: str
    status: Literal[SessionStatus.EXITED, SessionStatus.DEAD]
    end_reason: EndReason
    detail: str
    created: int
    ended: int
    exitCode: int | None
    signal: int | None
    oomKilled: bool
    restartCount: int
    failedRuns: list[ShownFailedRun]
    timeline: list[ShownMoment]
    cpuSeconds: float | None
    peakMemoryBytes: int | None
    log: str | None
    logTruncated: bool


@operation()
async def get_report(request: web.Request) -> Answer[Report]:
    """Describe how a session ended, with its restarts, what it used and the end of its log.

    It is there from the end of the session until the session is forgotten, whether or not its
    container is kept.
    """
    sessions = services_of(request).sessions
    found = await sessions.get(caller_of(request), request.match_info["id"])
    return Answer(_shown(found.session.id, await sessions.report(found)))


def _shown(session_id: str, report: SessionReport) -> Report:
    log = report.log
    return {
        "id": session_id,
        "status": SessionStatus.EXITED if report.state == "exited" else SessionStatus.DEAD,
        "end_reason": report.end_reason,
        "detail": report.detail,
        "created": report.create_ms,
        "ended": report.end_ms,
        "exitCode": report.exit_code,
        "signal": report.signal,
        "oomKilled": report.oom_killed,
        "restartCount": report.restart_count,
        "failedRuns": [_shown_run(run) for run in report.failed_runs],
        "timeline": [
            {"status": SessionStatus(moment.state), "time": moment.time_ms}
            for moment in report.timeline
        ],
        "cpuSeconds": report.cpu_seconds,
        "peakMemoryBytes": report.peak_memory_bytes,
        "log": None if log is None else log[-LOG_BYTES:].decode("utf-8", "replace"),
        "logTruncated": report.log_truncated or len(log or b"") > LOG_BYTES,
    }


def _shown_run(run: FailedRun) -> ShownFailedRun:
    return {
        "started": run.start_ms,
        "ended": run.end_ms,
        "exitCode": run.exit_code,
        "oomKilled": run.oom_killed,
        "delaySeconds": run.delay,
    }
