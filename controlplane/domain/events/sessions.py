"""Events of sessions, in the order of a session's life."""

import json
from collections.abc import Mapping, Sequence
from typing import NamedTuple, Self

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.event import Audience, Event, Retention
from controlplane.domain.sessions.adoption import PlacedSession
from tiltyard.contract import EndReason, Identity
from tiltyard.records import record

MOST_LABEL_BYTES = 2048  # Of the labels of a session in its events, as JSON

_Place = tuple[str, str, str]
_Named = tuple[str, str, Actor, float, *_Place, Mapping[str, str] | None, str | None]


class SessionSubject(NamedTuple):
    """The fields that all events of a session have. `labels` is the JSON text of its row.

    `traceparent` is the one of the start request, "" if the request had none.
    """

    account: str
    session_id: str
    image: str
    tag: str
    location: str
    labels: str
    traceparent: str = ""

    @classmethod
    def of(cls, identity: Identity) -> Self:
        """Return the session with an identity."""
        place = (identity.application, identity.tag, identity.location)
        labels = json.dumps(dict(identity.labels))
        return cls(identity.account, identity.session_id, *place, labels, identity.traceparent)

    def named(self, actor: Actor, now: float) -> _Named:
        """Return the fields that all events of a session begin with."""
        labels = json.loads(self.labels) if len(self.labels) <= MOST_LABEL_BYTES else None
        place = (self.image, self.tag, self.location)
        traceparent = self.traceparent or None
        return (self.account, self.session_id, actor, now, *place, labels, traceparent)


@record(frozen=True, slots=True)
class SessionEvent(Event):
    """An event of a session.

    `labels` are the caller's; None if they have more than MOST_LABEL_BYTES. `traceparent` is that
    of the start.
    """

    audience = Audience.BOTH
    retention = Retention.SESSIONS
    object_type = "the session"

    image: str
    tag: str
    location: str
    labels: Mapping[str, str] | None
    traceparent: str | None


@record(frozen=True, slots=True, kw_only=True)
class SessionStarting(SessionEvent):
    """A start got its id and its part of the quota: the session is starting."""

    kind = "session.starting"


@record(frozen=True, slots=True, kw_only=True)
class SessionStartFailed(SessionEvent):
    """A start failed, and its id is free again. `why` is a text, or null."""

    kind = "session.start_failed"

    why: str | None = None


@record(frozen=True, slots=True, kw_only=True)
class SessionReported(SessionEvent):
    """A session has entered a state on `host`, the address for players.

    `host_time` is when, in milliseconds since the epoch by the host's clock; None if unknown.
    """

    host: str
    host_time: int | None


@record(frozen=True, slots=True, kw_only=True)
class SessionEntered(SessionReported):
    """A session has entered a state; `skipped` has those before it that were not reported."""

    skipped: Sequence[str] = ()


@record(frozen=True, slots=True, kw_only=True)
class SessionRunning(SessionEntered):
    """The game runs. `ports` has the host port of each container port."""

    kind = "session.running"

    ports: Mapping[str, int]


@record(frozen=True, slots=True, kw_only=True)
class SessionReady(SessionReported):
    """The ports of a run are all bound: players can connect."""

    kind = "session.ready"

    ports: Mapping[str, int]


@record(frozen=True, slots=True, kw_only=True)
class SessionRestarting(SessionEntered):
    """A run has failed, and the game is started again."""

    kind = "session.restarting"


@record(frozen=True, slots=True, kw_only=True)
class SessionDraining(SessionEvent):
    """The host of a live session is being drained: the session should get no more players.

    `deadline` is when the session is stopped, in milliseconds since the epoch; null if never.
    """

    kind = "session.draining"

    host: str
    deadline: int | None


@record(frozen=True, slots=True, kw_only=True)
class SessionUndrained(SessionEvent):
    """The host of a live session is no longer being drained."""

    kind = "session.undrained"

    host: str


@record(frozen=True, slots=True, kw_only=True)
class SessionStopRequested(SessionEvent):
    """A stop was requested."""

    kind = "session.stop_requested"


@record(frozen=True, slots=True, kw_only=True)
class SessionStopping(SessionEntered):
    """The game has got its stop signal, and its grace period runs."""

    kind = "session.stopping"


@record(frozen=True, slots=True, kw_only=True)
class SessionEnded(SessionEntered):
    """A session has ended.

    `forced` is whether SIGKILL was needed to stop it. `exitCode`, `forced` and `hostTime` are null
    if its host has not reported them.
    """

    kind = "session.ended"

    reason: EndReason | None
    exit_code: int | None = None
    forced: bool | None = None
    host_time: int | None = None


@record(frozen=True, slots=True, kw_only=True)
class SessionAdopted(SessionEvent):
    """A host has reported a session that the database had lost."""

    kind = "session.adopted"


@record(frozen=True, slots=True, kw_only=True)
class SessionDuplicate(SessionEvent):
    """Two sessions have one id: one of them is stopped, the other is kept."""

    kind = "session.duplicate"
    audience = Audience.OPERATOR

    stopped: PlacedSession
    kept: PlacedSession
