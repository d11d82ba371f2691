"""POST, GET and DELETE of sessions."""

from urllib.parse import quote

from aiohttp import web

from controlplane.api.operation import Answer, Listing, operation
from controlplane.api.services import caller_of, services_of
from controlplane.api.session_bodies import (
    DescribedSession,
    Sessions,
    SessionsQuery,
    StartBody,
    StartedSession,
    described_session,
    listed_session,
    started_session,
)


@operation(201, headers={"Location": "The path of the session."})
async def start_session(request: web.Request, body: StartBody) -> Answer[StartedSession]:
    """Run a session of an application in a region.

    The answer comes when the container runs, within 8 s. A caller that hangs up does not cancel
    its start.
    """
    session = await services_of(request).starts.start(caller_of(request), body.request())
    path = f"/session/{quote(session.identity.session_id, safe='')}"
    return Answer(started_session(session), headers={"Location": path})


@operation()
async def list_sessions(request: web.Request, query: SessionsQuery) -> Listing[Sessions]:
    """List the sessions of the account: those that play, or `all` that are known."""
    wanted = query.sessions_of(caller_of(request).account)
    found = services_of(request).sessions.find(wanted)
    return Listing("sessions", found, listed_session)


@operation()
async def get_session(request: web.Request) -> Answer[DescribedSession]:
    """Describe a session."""
    services, caller = services_of(request), caller_of(request)
    shown = await services.sessions.get(caller, request.match_info["id"])
    joined = await services.players.joined(caller, shown.session.id)
    return Answer(described_session(shown, joined))


@operation()
async def stop_session(request: web.Request) -> None:
    """Stop a session: SIGTERM, then SIGKILL after the host's grace period.

    The answer comes when the container has ended, within 12 s.
    """
    await services_of(request).sessions.stop(caller_of(request), request.match_info["id"])
