"""The events of a session's report: what its host says that the row of the session did not."""

from collections.abc import Iterator
from dataclasses import dataclass

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.event import Event
from controlplane.domain.events.sessions import (
    SessionEnded,
    SessionReady,
    SessionRestarting,
    SessionRunning,
    SessionStopping,
)
from controlplane.domain.hosts.contract import HostSession
from tiltyard.contract import State

_ENTERED = {
    State.RUNNING: SessionRunning,
    State.RESTARTING: SessionRestarting,
    State.SHUTTINGDOWN: SessionStopping,
}
_RUN_STATES = {State.RUNNING: State.RESTARTING, State.RESTARTING: State.RUNNING}
"""The states of a session that is started again, each with the one before it."""


@dataclass(frozen=True, slots=True)
class KnownSession:
    """What is known of a session; times in milliseconds by the host's clock.

    `is_confirmed`: its host has reported it. `failed_ms` is when its last failed run ended,
    `ready_ms` when the ports of its newest run were bound.
    """

    account: str
    session_id: str
    is_confirmed: bool
    state: State
    failed_ms: int | None
    ready_ms: int | None


def reported_events(
    before: KnownSession, after: KnownSession, session: HostSession, *, reporter: Actor, now: float
) -> Iterator[Event]:
    """Return the events of a report that changes `before` to `after`, in order."""
    subject = (after.account, after.session_id, reporter, now)
    state = after.state
    host = session.host
    if state.ended:
        reason = session.end_reason
        yield SessionEnded(*subject, reason=reason, exit_code=session.exit_code, host=host)
        return
    has_failed_again = after.failed_ms != before.failed_ms and before.is_confirmed
    is_new_run = has_failed_again and state in _RUN_STATES and state is before.state
    entered = _ENTERED.get(state)
    if entered is not None and (is_new_run or not before.is_confirmed or state != before.state):
        skipped = (_RUN_STATES[state],) if is_new_run else ()
        yield entered(*subject, host=host, skipped=skipped)
    if session.is_ready and after.ready_ms != before.ready_ms:
        yield SessionReady(*subject, host=host, ready_ms=after.ready_ms)
