"""Request and response bodies of sessions."""

import json
from typing import Annotated, ClassVar, Literal, NotRequired

from pydantic import Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import (
    Arguments,
    Duration,
    Environment,
    ExternalId,
    Labels,
    Name,
    PortNumber,
    SessionId,
)
from controlplane.api.operations.queries import Flag, Integer, Query, Record
from controlplane.applications.applications import MAX_PORTS
from controlplane.domain.durations import parse_duration
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.status import SessionStatus
from controlplane.sessions.sessions import ShownSession
from controlplane.sessions.start_request import Pin, StartRequest
from tiltyard.contract import Protocol
from tiltyard.runtime.clock import to_ms


class PortBody(Body):
    """A host port requested by the caller."""

    container: PortNumber
    host: PortNumber
    type: Literal["tcp", "udp"] | None = None


class StartBody(Body):
    """The body of POST /session; `null` counts as absent."""

    location: Name
    image: Name
    id: SessionId | None = None
    env: Environment | None = None
    args: Arguments | None = None
    restart: bool | None = None
    labels: Labels | None = None
    version: Annotated[str, Field(max_length=256)] | None = None
    ttl: Duration | None = None
    external_id: ExternalId | None = None
    ports: Annotated[list[PortBody], Field(max_length=MAX_PORTS)] | None = None

    def request(self) -> StartRequest:
        """Convert to a start request."""
        return StartRequest(
            location=self.location,
            image=self.image,
            id=self.id,
            env=self.env,
            args=tuple(self.args or ()),
            restart=bool(self.restart),
            labels=self.labels,
            version=self.version or None,
            ttl=None if self.ttl is None else parse_duration(self.ttl),
            external_id=self.external_id or "",
            pins=tuple(
                Pin(port.container, port.host, Protocol(port.type) if port.type else None)
                for port in self.ports or ()
            ),
        )


class PlayerBounds(Query):
    """Exclusive bounds of the number of players."""

    lt: Integer | None = None
    gt: Integer | None = None


class SessionsQuery(Query):
    """The query of GET /session; what is absent does not filter.

    `filter`: labels of the caller that must all match exactly.
    """

    deep: ClassVar = frozenset({"playerCount", "filter"})
    refused: ClassVar = {"filterNot": "is not supported"}

    all: Flag = False
    location: str | None = None
    image: str | None = None
    tag: str | None = None
    host: str | None = None
    playerCount: PlayerBounds | None = None  # noqa: N815  # the interface's name
    filter: Record | None = None


class StartedPort(TypedDict):
    """A container port, and the host port that leads to it."""

    type: Literal["tcp", "udp"]
    container: int
    host: int


class StartedSession(TypedDict):
    """A running session and its address; ports are in the application's order."""

    id: str
    host: str
    ports: list[StartedPort]


class SessionLabels(TypedDict):
    """Injected variables, and the caller's labels: two objects, each encoded as JSON."""

    env: str
    tags: str


class SessionFields(TypedDict):
    """Fields common to all views of a session; `created` in milliseconds since the epoch."""

    id: str
    image: str
    tag: str
    location: str
    host: str
    created: int
    port: dict[str, int]
    status: SessionStatus
    labels: SessionLabels
    external_id: NotRequired[str]


class ListedSession(SessionFields):
    """A session in a list."""

    playerCount: int


class JoinedPlayers(TypedDict):
    """The players who are joined, in the order of joining."""

    joined: list[str]
    joinedCount: int


class DescribedSession(SessionFields):
    """A session with its players."""

    players: JoinedPlayers


def started_session(session: HostSession) -> StartedSession:
    """Return a session that was started."""
    ports: list[StartedPort] = [
        {"type": port.protocol.value, "container": port.container, "host": port.host}
        for port in session.ports
    ]
    return {"id": session.identity.session_id, "host": session.host, "ports": ports}


def listed_session(shown: ShownSession) -> ListedSession:
    """Return a session's entry in a list."""
    return {**_fields(shown), "playerCount": shown.session.player_count}


def encoded_session(shown: ShownSession, joined: list[str]) -> bytes:
    """Return a session with its players as JSON."""
    described: DescribedSession = {
        **_fields(shown),
        "players": {"joined": joined, "joinedCount": len(joined)},
    }
    return json.dumps(described).encode()


def _fields(shown: ShownSession) -> SessionFields:
    session = shown.session
    found: SessionFields = {
        "id": session.id,
        "image": session.application,
        "tag": session.tag,
        "location": session.location,
        "host": session.host,
        "created": to_ms(session.created),
        "port": {
            f"{p['container']}/{p['protocol']}": p["host"] for p in json.loads(session.ports)
        },
        "status": shown.status,
        "labels": {"env": session.injected_env, "tags": session.labels},
    }
    if session.external_id:
        found["external_id"] = session.external_id
    return found
