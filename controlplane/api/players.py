"""PUT /session/player/join and DELETE /session/player/leave."""

from typing import Annotated

from aiohttp import web
from pydantic import Field

from controlplane.api.bodies import Body, read_body
from controlplane.api.fields import SessionId
from controlplane.api.services import caller_of, services_of

_PlayerId = Annotated[str, Field(min_length=1, max_length=256)]
_PlayerIds = Annotated[list[_PlayerId], Field(min_length=1, max_length=1000)]


class JoinBody(Body):
    """The body of PUT /session/player/join."""

    session: SessionId
    players: _PlayerIds


class LeaveBody(Body):
    """The body of DELETE /session/player/leave."""

    session: SessionId | None = None
    players: _PlayerIds


async def join_players(request: web.Request) -> web.Response:
    """PUT /session/player/join."""
    body = await read_body(request, JoinBody)
    players = services_of(request).players
    joined = await players.join(caller_of(request), body.session, body.players)
    return web.json_response({"count": len(joined), "players": joined})


async def leave_players(request: web.Request) -> web.Response:
    """DELETE /session/player/leave."""
    body = await read_body(request, LeaveBody)
    players = services_of(request).players
    left = await players.leave(caller_of(request), body.session, body.players)
    return web.json_response({"count": left, "players": body.players})
