"""PUT /session/player/join and DELETE /session/player/leave."""

from typing import Annotated

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import SessionId, bounded_as_json
from controlplane.api.operations.operation import Answer, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.storage.tables.sessions.players import MAX_PLAYERS_BYTES

_PlayerId = Annotated[str, Field(min_length=1, max_length=256)]
_PlayerIds = Annotated[
    list[_PlayerId], Field(min_length=1, max_length=1000), bounded_as_json(MAX_PLAYERS_BYTES)
]


class JoinBody(Body):
    """The body of PUT /session/player/join."""

    session: SessionId
    players: _PlayerIds


class LeaveBody(Body):
    """The body of DELETE /session/player/leave."""

    session: SessionId | None = None
    players: _PlayerIds


class PlayerCount(TypedDict):
    """How many players are joined, and the players of the call."""

    count: int
    players: list[str]


@operation()
async def join_players(request: web.Request, body: JoinBody) -> Answer[PlayerCount]:
    """Register players as joined.

    Idempotent. The answer has all players who are joined after the call, in the order of joining.
    """
    sessions = services_of(request).sessions
    joined = await sessions.join(caller_of(request), body.session, body.players)
    return Answer({"count": len(joined), "players": joined})


@operation()
async def leave_players(request: web.Request, body: LeaveBody) -> Answer[PlayerCount]:
    """Register players as having left.

    Idempotent. Without `session` they leave every live session that they are joined to. The
    answer has the players of the call, and how many are left in the sessions that they left.
    """
    sessions = services_of(request).sessions
    left = await sessions.leave(caller_of(request), body.session, body.players)
    return Answer({"count": left, "players": body.players})
