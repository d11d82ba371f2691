"""Events of sessions, in the order of a session's life."""

from collections.abc import Sequence
from dataclasses import dataclass

from controlplane.domain.events.event import Audience, Event, Retention
from controlplane.domain.sessions.adoption import PlacedSession
from tiltyard.contract import EndReason, State


@dataclass(frozen=True, slots=True)
class SessionEvent(Event):
    """An event of a session."""

    audience = Audience.BOTH
    retention = Retention.SESSIONS
    object_type = "the session"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReserved(SessionEvent):
    """A start got its id and its part of the quota: the session is starting."""

    kind = "session.reserved"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionNotStarted(SessionEvent):
    """A start failed, and its id is free again. `why` is a text, or null."""

    kind = "session.not_started"

    why: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEntered(SessionEvent):
    """A session has entered a state on `host`; `skipped` has those that were not reported."""

    host: str
    skipped: Sequence[State] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRunning(SessionEntered):
    """The game runs on `host`, the address for players.

    `skipped` has `restarting` if the run before it failed and nothing was reported in between.
    """

    kind = "session.running"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionReady(SessionEvent):
    """The ports of a run are all bound: players can connect. `readyMs` is the host's time."""

    kind = "session.ready"

    host: str
    ready_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionRestarting(SessionEntered):
    """A run has failed, and the game is started again.

    `skipped` has `running` if it had been started once more and nothing was reported in between.
    """

    kind = "session.restarting"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStop(SessionEvent):
    """A stop was requested."""

    kind = "session.stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionStopping(SessionEntered):
    """The game has got its stop signal, and its grace period runs. `skipped` is empty."""

    kind = "session.stopping"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(SessionEvent):
    """A session has ended. `exitCode` is null if its host has not reported one."""

    kind = "session.ended"

    reason: EndReason | None
    exit_code: int | None = None
    host: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionAdopted(SessionEvent):
    """A host has reported a session that the database had lost."""

    kind = "session.adopted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionDuplicate(SessionEvent):
    """Two sessions have one id: one of them is stopped, the other is kept."""

    kind = "session.duplicate"
    audience = Audience.OPERATOR

    stopped: PlacedSession
    kept: PlacedSession
