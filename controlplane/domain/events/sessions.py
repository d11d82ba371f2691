"""Events of sessions, in the order of a session's life."""

from dataclasses import dataclass

from controlplane.domain.events.event import Audience, Event, Retention
from controlplane.domain.sessions.adoption import PlacedSession
from tiltyard.contract import EndReason


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
class SessionStop(SessionEvent):
    """A stop was requested."""

    kind = "session.stop"


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionEnded(SessionEvent):
    """A session has ended."""

    kind = "session.ended"

    reason: EndReason | None


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
