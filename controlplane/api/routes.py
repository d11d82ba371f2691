"""The whole API on one screen: method, path, scope, documented errors, handler."""

import functools
import json
import re

from aiohttp import hdrs, web

from controlplane.api.documents import (
    OPENAPI,
    OPENAPI_30,
    get_docs,
    get_docs_file,
    get_openapi,
    get_openapi_30,
    read_files,
)
from controlplane.api.health import get_health, get_ready
from controlplane.api.openapi import openapi_document
from controlplane.api.openapi_30 import openapi_30
from controlplane.api.operations.bodies import MAX_BODY
from controlplane.api.operations.operation import Route
from controlplane.api.operations.services import CALLER, SERVICES, Services, services_of
from controlplane.api.operations.streams import end_streams, fetch_artifact, stream_logs
from controlplane.api.operator.accounts import (
    create_account,
    edit_account,
    list_accounts,
    remove_account,
)
from controlplane.api.operator.agents import (
    create_enrolment_token,
    create_token_to_enrol_again,
    drain_agent,
    get_agent,
    list_agents,
    remove_agent,
    revoke_agent,
    undrain_agent,
)
from controlplane.api.operator.audit import list_audit
from controlplane.api.operator.authority import (
    finish_rotation,
    get_authority,
    rotate_authority,
)
from controlplane.api.operator.fleet import (
    create_region,
    describe_regions,
    list_node_pools,
    remove_node_pool,
    remove_region,
    set_node_pool,
)
from controlplane.api.operator.placement import explain_placement
from controlplane.api.operator.registries import (
    list_registries,
    remove_registry,
    set_registry,
)
from controlplane.api.operator.sessions import list_all_sessions, stop_any_session
from controlplane.api.operator.tokens import create_token, list_tokens, revoke_token
from controlplane.api.resources.applications import (
    create_application,
    edit_application,
    enable_tag,
    list_applications,
    list_available_tags,
)
from controlplane.api.resources.locations import available_locations, list_regions, tag_exists
from controlplane.api.resources.players import join_players, leave_players
from controlplane.api.resources.reports import get_report
from controlplane.api.resources.sessions import (
    end_waits,
    get_session,
    list_sessions,
    start_session,
    stop_session,
)
from controlplane.api.resources.tokens import make_token
from controlplane.api.resources.warm_pools import list_warm_pools, remove_warm_pool, set_warm_pool
from controlplane.domain.errors import ForbiddenError
from controlplane.domain.tokens import Scope, grants
from controlplane.http.errors import Handler, add_headers, answer_errors
from controlplane.http.measuring import measured
from controlplane.http.request_slots import RequestSlot, RequestSlots
from tiltyard.runtime.logging.context import bind

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("POST", "/session", Scope.SESSION_START, start_session,
          {401, 402, 403, 404, 409, 413, 420, 422, 503, 504}),
    Route("GET", "/session", Scope.SESSION_READ, list_sessions, {401, 403, 422}),
    Route("GET", "/session/{id}", Scope.SESSION_READ, get_session, {401, 403, 404}),
    Route("DELETE", "/session/{id}", Scope.SESSION_STOP, stop_session,
          {401, 403, 404, 409, 503}),
    Route("GET", "/session/{id}/report", Scope.SESSION_READ, get_report,
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
          {401, 402, 403, 404, 413, 422}),
    Route("POST", "/application/{name}/tags", Scope.APPLICATION_WRITE, enable_tag,
          {401, 403, 404, 409, 413, 422, 503, 504}),
    Route("GET", "/application/{name}/tags/available", Scope.APPLICATION_READ,
          list_available_tags, {401, 403, 404, 422, 503, 504}),
    Route("GET", "/warm-pool", Scope.APPLICATION_READ, list_warm_pools, {401, 403}),
    Route("PUT", "/warm-pool/{image}/{location}", Scope.APPLICATION_WRITE, set_warm_pool,
          {401, 402, 403, 404, 409, 413, 422}),
    Route("DELETE", "/warm-pool/{image}/{location}", Scope.APPLICATION_WRITE, remove_warm_pool,
          {401, 403, 404}),
    Route("GET", "/available-location/{image}", Scope.REGIONS_READ, available_locations,
          {401, 403, 404}),
    Route("GET", "/tag/{region}/{image}/{version}", Scope.REGIONS_READ, tag_exists,
          {400, 401, 403, 404}),
    Route("GET", "/region", Scope.REGIONS_READ, list_regions, {401, 403}),
    Route("POST", "/token", Scope.TOKEN_WRITE, make_token,
          {400, 401, 403, 409, 413, 422}),
    Route("GET", "/operator/region", Scope.OPERATOR_READ, describe_regions, {401, 403}),
    Route("PUT", "/operator/region/{region}", Scope.OPERATOR_WRITE, create_region,
          {401, 403, 422}),
    Route("DELETE", "/operator/region/{region}", Scope.OPERATOR_WRITE, remove_region,
          {401, 403, 404, 409}),
    Route("GET", "/operator/node-pool", Scope.OPERATOR_READ, list_node_pools, {401, 403}),
    Route("PUT", "/operator/node-pool/{nodePool}", Scope.OPERATOR_WRITE, set_node_pool,
          {401, 403, 413, 422}),
    Route("DELETE", "/operator/node-pool/{nodePool}", Scope.OPERATOR_WRITE, remove_node_pool,
          {401, 403, 404, 409}),
    Route("GET", "/operator/registry", Scope.OPERATOR_READ, list_registries, {401, 403}),
    Route("PUT", "/operator/registry/{registry}", Scope.OPERATOR_WRITE, set_registry,
          {401, 403, 409, 413, 422}),
    Route("DELETE", "/operator/registry/{registry}", Scope.OPERATOR_WRITE, remove_registry,
          {401, 403, 404, 409}),
    Route("GET", "/operator/placement", Scope.OPERATOR_READ, explain_placement,
          {401, 403, 404, 422}),
    Route("GET", "/operator/agent", Scope.OPERATOR_READ, list_agents, {401, 403}),
    Route("POST", "/operator/enrolment-token", Scope.OPERATOR_WRITE, create_enrolment_token,
          {401, 403, 404, 413, 422}),
    Route("GET", "/operator/agent/{agent}", Scope.OPERATOR_READ, get_agent, {401, 403, 404}),
    Route("DELETE", "/operator/agent/{agent}", Scope.OPERATOR_WRITE, remove_agent,
          {401, 403, 404, 409}),
    Route("POST", "/operator/agent/{agent}/token", Scope.OPERATOR_WRITE,
          create_token_to_enrol_again, {401, 403, 404}),
    Route("POST", "/operator/agent/{agent}/drain", Scope.OPERATOR_WRITE, drain_agent,
          {401, 403, 404, 409, 413, 422}),
    Route("DELETE", "/operator/agent/{agent}/drain", Scope.OPERATOR_WRITE, undrain_agent,
          {401, 403, 404, 409}),
    Route("POST", "/operator/agent/{agent}/revoke", Scope.OPERATOR_WRITE, revoke_agent,
          {401, 403, 404, 409}),
    Route("GET", "/operator/authority", Scope.OPERATOR_READ, get_authority, {401, 403}),
    Route("POST", "/operator/authority/rotate", Scope.OPERATOR_WRITE, rotate_authority,
          {401, 403, 413, 422, 503}),
    Route("POST", "/operator/authority/finish", Scope.OPERATOR_WRITE, finish_rotation,
          {401, 403, 409, 413, 422, 503}),
    Route("GET", "/operator/account", Scope.OPERATOR_READ, list_accounts, {401, 403}),
    Route("POST", "/operator/account", Scope.OPERATOR_WRITE, create_account,
          {401, 403, 409, 413, 422}),
    Route("PUT", "/operator/account/{account}", Scope.OPERATOR_WRITE, edit_account,
          {401, 403, 404, 413, 422}),
    Route("DELETE", "/operator/account/{account}", Scope.OPERATOR_WRITE, remove_account,
          {401, 403, 404, 409}),
    Route("GET", "/operator/token", Scope.OPERATOR_READ, list_tokens, {401, 403, 422}),
    Route("POST", "/operator/token", Scope.OPERATOR_WRITE, create_token,
          {400, 401, 403, 404, 409, 413, 422}),
    Route("DELETE", "/operator/token/{id}", Scope.OPERATOR_WRITE, revoke_token, {401, 403, 404}),
    Route("GET", "/operator/session", Scope.OPERATOR_READ, list_all_sessions, {401, 403, 422}),
    Route("DELETE", "/operator/session/{account}/{id}", Scope.OPERATOR_WRITE, stop_any_session,
          {401, 403, 404, 409, 503}),
    Route("GET", "/operator/audit", Scope.OPERATOR_READ, list_audit, {401, 403, 422}),
    Route("GET", "/healthz", None, get_health, set()),
    Route("GET", "/readyz", None, get_ready, {503}),
    Route("GET", "/openapi.json", None, get_openapi, set()),
    Route("GET", "/openapi-3.0.json", None, get_openapi_30, set()),
    Route("GET", "/docs", None, get_docs, set()),
    Route("GET", "/docs/{file}", None, get_docs_file, {404}),
)
# fmt: on

_OPEN = frozenset(
    {"/healthz", "/readyz", "/openapi.json", "/openapi-3.0.json", "/docs", "/docs/{file}"}
)
_PARAMETER = re.compile(r"\{(\w+)\}")


def make_web_app(services: Services, routes: tuple[Route, ...] = ROUTES) -> web.Application:
    """Build the application.

    Raises:
        ValueError: A route lacks its scope or its documented errors.
    """
    app = web.Application(middlewares=[answer_errors], client_max_size=MAX_BODY)
    app[SERVICES] = services
    app[OPENAPI], app[OPENAPI_30] = _documents()
    app.on_startup.append(read_files)
    app.on_response_prepare.append(add_headers)
    app.on_shutdown.append(end_streams)
    app.on_shutdown.append(end_waits)
    for route in routes:
        route.check(_OPEN)
        # HEAD is not in the interface, so GET does not bring it along: 405.
        app.router.add_route(
            route.method, _pattern(route.path), _guarded(route, services.request_slots)
        )
    app.middlewares.insert(0, measured(services.http))
    return app


@functools.cache
def _documents() -> tuple[bytes, bytes]:
    """Describe the API; once in a process, as it takes a quarter of a second."""
    document = openapi_document(ROUTES)
    return json.dumps(document).encode(), json.dumps(openapi_30(document)).encode()


def _pattern(path: str) -> str:
    """Let a parameter be any text, an encoded slash too; aiohttp's own leaves braces out."""
    return _PARAMETER.sub(r"{\1:[^/]+}", path)


def _guarded(route: Route, slots: RequestSlots) -> Handler:
    """Put the token, a slot of its account and the scope before the handler."""
    scope = route.scope
    if scope is None:
        return _unguarded(route)

    async def handle(request: web.Request) -> web.StreamResponse:
        slot = await _take_slot(request, slots)
        try:
            _check_scope(request, scope)
            if not request.content.is_eof():
                # A body may take its time: its account goes on meanwhile, and its token may end.
                slot.release()
                await route.handler.receive(request)
                slot = await _take_slot(request, slots)
                _check_scope(request, scope)
            taken = await route.handler.read(request)
            return await route.handler.run(request, taken)
        finally:
            slot.release()

    return handle


def _unguarded(route: Route) -> Handler:
    async def handle(request: web.Request) -> web.StreamResponse:
        return await route.handler.run(request, await route.handler.read(request))

    return handle


async def _take_slot(request: web.Request, slots: RequestSlots) -> RequestSlot:
    """Authenticate the caller, and wait for a slot of the account."""
    token, address = _bearer(request), request.remote or ""
    caller = await services_of(request).accounts.authenticate(token, address)
    request[CALLER] = caller
    if caller.account:
        bind(account=caller.account)
    return await slots.take(caller.account)


def _check_scope(request: web.Request, scope: Scope) -> None:
    if not grants(request[CALLER].scopes, scope):
        raise ForbiddenError(scope)


def _bearer(request: web.Request) -> str:
    """Give the token that was sent; "", which is none, where there is not just one."""
    headers = request.headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, token = headers[0].partition(" ") if len(headers) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""
