"""The whole API on one screen: method, path, scope, documented errors, handler."""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from aiohttp import hdrs, web

from controlplane.api.applications import (
    create_application,
    edit_application,
    enable_tag,
    list_applications,
)
from controlplane.api.bodies import MAX_BODY
from controlplane.api.errors import Handler, add_headers, answer_errors
from controlplane.api.health import get_health, get_ready
from controlplane.api.locations import available_locations, list_regions, tag_exists
from controlplane.api.operation import Operation
from controlplane.api.players import join_players, leave_players
from controlplane.api.services import CALLER, SERVICES, Services, services_of
from controlplane.api.sessions import get_session, list_sessions, start_session, stop_session
from controlplane.api.streams import STREAMS, end_streams, fetch_artifact, stream_logs
from controlplane.api.tokens import make_token
from controlplane.errors import ForbiddenError, UnauthorizedError
from controlplane.tokens import Scope, grants


@dataclass(frozen=True, slots=True)
class Route:
    """One row of the table; `scope` is None where no token is needed."""

    method: str
    path: str
    scope: Scope | None
    handler: Operation
    errors: AbstractSet[int]


# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("POST", "/session", Scope.SESSION_START, start_session,
          {401, 402, 403, 404, 409, 413, 420, 422, 503}),
    Route("GET", "/session", Scope.SESSION_READ, list_sessions, {401, 403, 422}),
    Route("GET", "/session/{id}", Scope.SESSION_READ, get_session, {401, 403, 404}),
    Route("DELETE", "/session/{id}", Scope.SESSION_STOP, stop_session,
          {401, 403, 404, 409, 503}),
    Route("PUT", "/session/player/join", Scope.SESSION_PLAYERS, join_players,
          {401, 403, 404, 413, 422}),
    Route("DELETE", "/session/player/leave", Scope.SESSION_PLAYERS, leave_players,
          {401, 403, 404, 413, 422}),
    Route("GET", "/logs", Scope.LOGS_READ, stream_logs, {401, 403, 404, 422, 503}),
    Route("GET", "/artifacts", Scope.ARTIFACT_READ, fetch_artifact,
          {401, 403, 404, 409, 413, 422, 503}),
    Route("POST", "/application", Scope.APPLICATION_WRITE, create_application,
          {401, 403, 409, 413, 422}),
    Route("GET", "/application", Scope.APPLICATION_READ, list_applications, {401, 403}),
    Route("PUT", "/application/{name}", Scope.APPLICATION_WRITE, edit_application,
          {401, 403, 404, 413, 422}),
    Route("POST", "/application/{name}/tags", Scope.APPLICATION_WRITE, enable_tag,
          {401, 403, 404, 413, 422, 503, 504}),
    Route("GET", "/available-location/{image}", Scope.REGIONS_READ, available_locations,
          {401, 403, 404}),
    Route("GET", "/tag/{region}/{image}/{version}", Scope.REGIONS_READ, tag_exists,
          {400, 401, 403, 404}),
    Route("GET", "/region", Scope.REGIONS_READ, list_regions, {401, 403}),
    Route("POST", "/token", Scope.TOKEN_WRITE, make_token,
          {400, 401, 403, 409, 413, 422}),
    Route("GET", "/healthz", None, get_health, set()),
    Route("GET", "/readyz", None, get_ready, {503}),
)
# fmt: on

_OPEN = frozenset({"/healthz", "/readyz"})
_PARAMETER = re.compile(r"\{(\w+)\}")


def make_web_app(services: Services, routes: tuple[Route, ...] = ROUTES) -> web.Application:
    """Build the application.

    Raises:
        ValueError: A route lacks its scope or its documented errors.
    """
    app = web.Application(middlewares=[answer_errors], client_max_size=MAX_BODY)
    app[SERVICES] = services
    app[STREAMS] = set()
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(end_streams)
    for route in routes:
        _check(route)
        # HEAD is not in the interface, so GET does not bring it along: 405.
        app.router.add_route(route.method, _pattern(route.path), _guarded(route))
    return app


def _check(route: Route) -> None:
    if route.path in _OPEN:
        return
    if route.scope is None:
        raise ValueError(f"{route.method} {route.path}: no scope")
    if not {401, 403} <= route.errors:
        raise ValueError(f"{route.method} {route.path}: errors lack 401 or 403")


def _pattern(path: str) -> str:
    """Let a parameter be any text, an encoded slash too; aiohttp's own leaves braces out."""
    return _PARAMETER.sub(r"{\1:[^/]+}", path)


def _guarded(route: Route) -> Handler:
    """Put token and scope before the handler."""

    async def handle(request: web.Request) -> web.StreamResponse:
        if route.scope is not None:
            caller = await services_of(request).accounts.authenticate(
                _bearer(request), request.remote or ""
            )
            if not grants(caller.scopes, route.scope):
                raise ForbiddenError(route.scope)
            request[CALLER] = caller
        return await route.handler(request)

    return handle


def _bearer(request: web.Request) -> str:
    headers = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    if scheme.lower() != "bearer":
        raise UnauthorizedError
    return token.strip()
