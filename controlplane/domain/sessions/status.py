"""The status that callers see: the agent's state under two overlays. Pure.

    created → running → (restarting → running)* → shuttingdown → exited | dead

`draining` lies over `running` while the host is drained, `server_unreachable` over every live
state while the host is unreachable.
"""

from enum import StrEnum

from tiltyard.contract import State


class SessionStatus(StrEnum):
    """The status of a session."""

    CREATED = "created"
    RUNNING = "running"
    RESTARTING = "restarting"
    EXITED = "exited"
    DEAD = "dead"
    DRAINING = "draining"
    SHUTTINGDOWN = "shuttingdown"
    SERVER_UNREACHABLE = "server_unreachable"


_OF_STATES = {state: SessionStatus(state.value) for state in State}

DEFAULT_LIST = frozenset({SessionStatus.RUNNING, SessionStatus.DRAINING})
"""What GET /session shows without `all`."""


def shown_status(state: State, *, draining: bool, responsive: bool) -> SessionStatus:
    """Return the status of a session; `responsive`: its host reported recently."""
    if not state.ended and not responsive:
        return SessionStatus.SERVER_UNREACHABLE
    if state is State.RUNNING and draining:
        return SessionStatus.DRAINING
    return _OF_STATES[state]
