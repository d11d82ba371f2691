"""The events of a session's report: what its host says that the row of the session did not."""

from collections.abc import Iterator

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.event import Event
from controlplane.domain.events.sessions import (
    SessionEnded,
    SessionReady,
    SessionRestarting,
    SessionRunning,
    SessionStopping,
    SessionSubject,
)
from controlplane.domain.hosts.contract import HostSession
from tiltyard.contract import EndReason, State
from tiltyard.records import record

_RUNNING = "running"
_READY = "ready"
_RESTARTING = "restarting"
_STOPPING = "stopping"

_STOPPED = frozenset(
    {EndReason.STOPPED, EndReason.TTL, EndReason.DRAIN, EndReason.DISK, EndReason.LOG}
)
"""The reasons for which an agent stops a session."""


@record(frozen=True, slots=True)
class KnownSession:
    """The known state of a session; times in milliseconds by the host's clock.

    `is_confirmed`: its host has reported it. `failed_ms` is the end of its last failed run,
    `ready_ms` the time when its newest run had bound its ports, `state_ms` the beginning of its
    state, None if read from a row.
    """

    is_confirmed: bool
    state: State
    failed_ms: int | None
    ready_ms: int | None
    state_ms: int | None = None


def reported_events(
    of: SessionSubject,
    before: KnownSession,
    after: KnownSession,
    session: HostSession,
    *,
    reporter: Actor,
    now: float,
) -> Iterator[Event]:
    """Return the events of a report that changes `before` to `after`, in order."""
    named = of.named(reporter, now)
    state = after.state
    host = session.host
    at = after.state_ms
    path = _path(before, after, session)
    skipped = path[:-1]
    if state.ended:
        yield SessionEnded(
            *named,
            host=host,
            host_time=at,
            skipped=path,
            reason=session.end_reason,
            exit_code=session.exit_code,
            forced=session.forced,
        )
        return
    if path and state is State.RUNNING:
        ports = session.ports_by_name
        yield SessionRunning(*named, host=host, host_time=at, skipped=skipped, ports=ports)
    elif path and state is State.RESTARTING:
        yield SessionRestarting(*named, host=host, host_time=at, skipped=skipped)
    elif path and state is State.SHUTTINGDOWN:
        yield SessionStopping(*named, host=host, host_time=at, skipped=skipped)
    if session.is_ready and after.ready_ms != before.ready_ms:
        ready = after.ready_ms
        yield SessionReady(*named, host=host, host_time=ready, ports=session.ports_by_name)


def _path(before: KnownSession, after: KnownSession, session: HostSession) -> tuple[str, ...]:
    """Return the states that a session has passed since `before`, without its end.

    A session that was restarting may have been stopped before its next run: that a run of it
    began in between is only known if the run was ready.
    """
    last = before.state if before.is_confirmed else State.CREATED
    has_failed = after.failed_ms != before.failed_ms
    ready_ms = None if after.ready_ms == before.ready_ms else after.ready_ms
    is_of_failed_run = has_failed and ready_ms is not None and ready_ms <= (after.failed_ms or 0)
    path: list[str] = []
    if has_failed:
        if last is not State.RUNNING:
            path.append(_RUNNING)
        if is_of_failed_run:
            path.append(_READY)
        path.append(_RESTARTING)
        last = State.RESTARTING
    return (*path, *_to_state(last, after.state, session, None if is_of_failed_run else ready_ms))


def _to_state(
    last: State, state: State, session: HostSession, ready_ms: int | None
) -> Iterator[str]:
    """Return the states after `last`, in which no run failed, up to `state`."""
    if state is State.RUNNING and last is not State.RUNNING:
        yield _RUNNING
    if state is not State.SHUTTINGDOWN and not state.ended:
        return
    has_begun = last is State.CREATED and session.has_run
    if has_begun or (last is State.RESTARTING and ready_ms is not None):
        yield _RUNNING
    if ready_ms is not None and last is not State.SHUTTINGDOWN:
        yield _READY
    is_stopped = state is State.SHUTTINGDOWN or session.end_reason in _STOPPED
    if is_stopped and last is not State.SHUTTINGDOWN:
        yield _STOPPING
