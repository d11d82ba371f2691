"""POST, GET and DELETE of sessions."""

from dataclasses import replace
from urllib.parse import quote

from aiohttp import web

from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.preferences import APPLIED, PREFER, WAIT_READY, ready_wait
from controlplane.api.operations.services import SERVICES, caller_of, services_of
from controlplane.api.resources.session_bodies import (
    DescribedSession,
    ListedSession,
    PlayerBounds,
    SessionsQuery,
    StartBody,
    StartedSession,
    encoded_session,
    listed_session,
    started_session,
)
from controlplane.domain.sessions.sessions import SessionFilter
from tiltyard.agent.traces import read_traceparent, trace_id_of
from tiltyard.runtime.logging.events import bind

TRACEPARENT = "traceparent"  # Header of POST /session


@operation(
    201,
    headers={"Location": "The path of the session."},
    at_times={APPLIED: f"`{WAIT_READY}` if the response waited until the session was ready."},
    reads={
        PREFER: f"`{WAIT_READY}; wait=60` waits until the ports are bound.",
        TRACEPARENT: "The trace of the caller (W3C Trace Context); kept with the session.",
    },
)
async def start_session(request: web.Request, body: StartBody) -> Answer[StartedSession]:
    """Run a session of an application in a region.

    The answer comes when the container runs, within 8 s. With `Prefer: wait=ready; wait=60` it
    comes when the ports are bound, so that players can connect; a session that is not ready this
    many seconds (1 to 120, default 30) after the request is stopped: 504. A client that
    disconnects does not cancel its start.
    """
    services = services_of(request)
    caller = caller_of(request)
    traceparent = read_traceparent(request.headers.getall(TRACEPARENT, []))
    if traceparent:
        bind(trace_id=trace_id_of(traceparent))
    wanted = replace(body.request(), traceparent=traceparent)
    wait = ready_wait(request.headers.getall(PREFER, []))
    applied = {}
    if wait is not None and services.ready_starts.has_room(caller.account):
        session = await services.ready_starts.start(caller, wanted, wait)
        applied = {APPLIED: WAIT_READY}
    else:
        session = await services.starts.start(caller, wanted)
    path = f"/session/{quote(session.identity.session_id, safe='')}"
    return Answer(started_session(session), headers={"Location": path} | applied)


async def end_waits(app: web.Application) -> None:
    """Answer the starts that wait for readiness; a shutdown hook."""
    app[SERVICES].ready_starts.stop_waiting()


@operation(key="sessions")
async def list_sessions(request: web.Request, query: SessionsQuery) -> Listing[ListedSession]:
    """List the account's sessions: running and draining ones, or `all` known ones."""
    players = query.playerCount or PlayerBounds()
    wanted = SessionFilter(
        account=caller_of(request).account,
        ended_too=query.all,
        location=query.location,
        application=query.image,
        tag=query.tag,
        host=query.host,
        labels=query.filter or {},
        more_players_than=players.gt,
        fewer_players_than=players.lt,
    )
    found = services_of(request).sessions.find(wanted)
    return Listing(found, listed_session)


@operation()
async def get_session(request: web.Request) -> Answer[DescribedSession]:
    """Describe a session."""
    services = services_of(request)
    caller = caller_of(request)
    session_id = request.match_info["id"]
    return Answer(await services.sessions.describe(caller, session_id, encoded_session))


@operation()
async def stop_session(request: web.Request) -> None:
    """Stop a session: its stop signal (SIGTERM by default), then SIGKILL after a grace period.

    The answer comes when the container has ended, within 12 s.
    """
    await services_of(request).sessions.stop(caller_of(request), request.match_info["id"])
