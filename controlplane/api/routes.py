"""The whole API on one screen: method, path, scope, documented errors, handler."""

import functools
import json

from aiohttp import hdrs, web
from multidict import CIMultiDictProxy

from controlplane.admission.byte_room import UNCOUNTED, ByteRoom
from controlplane.admission.request_slots import RequestSlot, RequestSlots
from controlplane.api import documents
from controlplane.api.openapi import openapi_document
from controlplane.api.operations import event_streams, streams
from controlplane.api.operations.bodies import receive_body
from controlplane.api.operations.operation import Route
from controlplane.api.operations.services import CALLER, SERVICES, Services
from controlplane.api.operator import (
    accounts,
    agents,
    audit,
    authority,
    exposure,
    fleet,
    placement,
    registries,
)
from controlplane.api.operator import events as all_events
from controlplane.api.operator import sessions as all_sessions
from controlplane.api.operator import tokens as all_tokens
from controlplane.api.operator import webhooks as all_webhooks
from controlplane.api.resources import (
    applications,
    events,
    locations,
    players,
    reports,
    sessions,
    tokens,
    warm_pools,
    webhooks,
)
from controlplane.domain.access.tokens import Scope, grants
from controlplane.domain.errors import BodiesBusyError, ForbiddenError
from controlplane.http.application import Application
from controlplane.http.errors import Handler
from controlplane.http.messages import Request
from tiltyard.runtime.logging.events import bind

READ = Scope.OPERATOR_READ
WRITE = Scope.OPERATOR_WRITE

# fmt: off
ROUTES: tuple[Route, ...] = (
    Route("POST", "/session", Scope.SESSION_START,
          sessions.start_session, {402, 404, 409, 420, 503, 504}),
    Route("GET", "/session", Scope.SESSION_READ, sessions.list_sessions),
    Route("GET", "/session/{id}", Scope.SESSION_READ, sessions.get_session, {404}),
    Route("DELETE", "/session/{id}", Scope.SESSION_STOP, sessions.stop_session, {404, 409, 503}),
    Route("GET", "/session/{id}/report", Scope.SESSION_READ, reports.get_report, {404, 409, 503}),
    Route("PUT", "/session/player/join", Scope.SESSION_PLAYERS, players.join_players, {404}),
    Route("POST", "/session/player/join", Scope.SESSION_PLAYERS,
          players.join_players, {404}, alias_of="PUT"),
    Route("DELETE", "/session/player/leave", Scope.SESSION_PLAYERS, players.leave_players, {404}),
    Route("POST", "/session/player/leave", Scope.SESSION_PLAYERS,
          players.leave_players, {404}, alias_of="DELETE"),
    Route("GET", "/logs", Scope.LOGS_READ, streams.stream_logs, {404, 416, 503}),
    Route("GET", "/event", Scope.EVENT_READ, events.read_events, {410, 429}),
    Route("GET", "/artifacts", Scope.ARTIFACT_READ, streams.fetch_artifact, {404, 409, 413, 503}),
    Route("POST", "/application", Scope.APPLICATION_WRITE, applications.create_application, {409}),
    Route("GET", "/application", Scope.APPLICATION_READ, applications.list_applications),
    Route("PUT", "/application/{name}", Scope.APPLICATION_WRITE,
          applications.edit_application, {402, 404}),
    Route("POST", "/application/{name}/tags", Scope.APPLICATION_WRITE,
          applications.enable_tag, {404, 409, 503, 504}),
    Route("GET", "/application/{name}/tags/available", Scope.APPLICATION_READ,
          applications.list_available_tags, {404, 503, 504}),
    Route("GET", "/warm-pool", Scope.APPLICATION_READ, warm_pools.list_warm_pools),
    Route("PUT", "/warm-pool/{image}/{location}", Scope.APPLICATION_WRITE,
          warm_pools.set_warm_pool, {402, 404, 409}),
    Route("DELETE", "/warm-pool/{image}/{location}", Scope.APPLICATION_WRITE,
          warm_pools.remove_warm_pool, {404}),
    Route("GET", "/available-location/{image}", Scope.REGIONS_READ,
          locations.available_locations, {404}),
    Route("GET", "/tag/{region}/{image}/{version}", Scope.REGIONS_READ,
          locations.tag_exists, {400, 404}),
    Route("GET", "/region", Scope.REGIONS_READ, locations.list_regions),
    Route("POST", "/webhook", Scope.WEBHOOK_WRITE, webhooks.create_webhook, {409}),
    Route("GET", "/webhook", Scope.WEBHOOK_READ, webhooks.list_webhooks),
    Route("GET", "/webhook/{id}", Scope.WEBHOOK_READ, webhooks.get_webhook, {404}),
    Route("PUT", "/webhook/{id}", Scope.WEBHOOK_WRITE, webhooks.replace_webhook, {404}),
    Route("DELETE", "/webhook/{id}", Scope.WEBHOOK_WRITE, webhooks.remove_webhook, {404}),
    Route("GET", "/webhook/{id}/delivery", Scope.WEBHOOK_READ, webhooks.list_deliveries, {404}),
    Route("POST", "/webhook/{id}/test", Scope.WEBHOOK_WRITE, webhooks.test_webhook, {404}),
    Route("POST", "/webhook/{id}/replay", Scope.WEBHOOK_WRITE,
          webhooks.replay_events, {404, 410}),
    Route("POST", "/webhook/{id}/secret", Scope.WEBHOOK_WRITE, webhooks.rotate_secret, {404}),
    Route("POST", "/token", Scope.TOKEN_WRITE, tokens.make_token, {400, 409}),
    Route("GET", "/operator/region", READ, fleet.describe_regions),
    Route("PUT", "/operator/region/{region}", WRITE, fleet.create_region, {422}),
    Route("DELETE", "/operator/region/{region}", WRITE, fleet.remove_region, {404, 409}),
    Route("GET", "/operator/node-pool", READ, fleet.list_node_pools),
    Route("PUT", "/operator/node-pool/{nodePool}", WRITE, fleet.set_node_pool),
    Route("DELETE", "/operator/node-pool/{nodePool}", WRITE, fleet.remove_node_pool, {404, 409}),
    Route("GET", "/operator/registry", READ, registries.list_registries),
    Route("PUT", "/operator/registry/{registry}", WRITE, registries.set_registry, {409}),
    Route("DELETE", "/operator/registry/{registry}", WRITE,
          registries.remove_registry, {404, 409}),
    Route("GET", "/operator/placement", READ, placement.explain_placement, {404}),
    Route("GET", "/operator/agent", READ, agents.list_agents),
    Route("POST", "/operator/enrolment-token", WRITE, agents.create_enrolment_token, {404}),
    Route("GET", "/operator/agent/{agent}", READ, agents.get_agent, {404}),
    Route("DELETE", "/operator/agent/{agent}", WRITE, agents.remove_agent, {404, 409}),
    Route("POST", "/operator/agent/{agent}/token", WRITE,
          agents.create_token_to_enrol_again, {404}),
    Route("POST", "/operator/agent/{agent}/drain", WRITE, agents.drain_agent, {404, 409}),
    Route("DELETE", "/operator/agent/{agent}/drain", WRITE, agents.undrain_agent, {404, 409}),
    Route("GET", "/operator/agent/{agent}/exposure", READ, exposure.get_exposure, {404}),
    Route("POST", "/operator/agent/{agent}/revoke", WRITE, exposure.revoke_agent, {404, 409}),
    Route("GET", "/operator/authority", READ, authority.get_authority),
    Route("POST", "/operator/authority/rotate", WRITE, authority.rotate_authority, {503}),
    Route("POST", "/operator/authority/finish", WRITE, authority.finish_rotation, {409, 503}),
    Route("GET", "/operator/account", READ, accounts.list_accounts),
    Route("POST", "/operator/account", WRITE, accounts.create_account, {409}),
    Route("PUT", "/operator/account/{account}", WRITE, accounts.edit_account, {404}),
    Route("DELETE", "/operator/account/{account}", WRITE, accounts.remove_account, {404, 409}),
    Route("GET", "/operator/token", READ, all_tokens.list_tokens),
    Route("POST", "/operator/token", WRITE, all_tokens.create_token, {400, 404, 409}),
    Route("DELETE", "/operator/token/{id}", WRITE, all_tokens.revoke_token, {404}),
    Route("GET", "/operator/session", READ, all_sessions.list_all_sessions),
    Route("DELETE", "/operator/session/{account}/{id}", WRITE,
          all_sessions.stop_any_session, {404, 409, 503}),
    Route("GET", "/operator/event", READ, all_events.read_all_events, {410, 429}),
    Route("GET", "/operator/webhook", READ, all_webhooks.list_all_webhooks),
    Route("GET", "/operator/audit", READ, audit.list_audit),
    Route("GET", "/healthz", None, documents.get_health),
    Route("GET", "/readyz", None, documents.get_ready, {503}),
    Route("GET", "/openapi.json", None, documents.get_openapi),
    Route("GET", "/docs", None, documents.get_docs),
    Route("GET", "/docs/{file}", None, documents.get_docs_file, {404}),
)
# fmt: on


def make_web_app(services: Services) -> Application:
    """Build the application."""
    app = Application(services.http)
    app.web[SERVICES] = services
    app.web[documents.OPENAPI] = _document()
    app.web.on_startup.append(documents.read_files)
    app.web.on_shutdown.append(event_streams.end_event_streams)
    app.web.on_shutdown.append(streams.end_streams)
    app.web.on_shutdown.append(sessions.end_waits)
    app.web.on_shutdown.append(webhooks.end_tests)
    for route in ROUTES:
        app.add_route(route.method, route.path, _guarded(route, services))
    return app


@functools.cache
def _document() -> bytes:
    """Return the OpenAPI document; cached, since it takes a quarter of a second."""
    return json.dumps(openapi_document(ROUTES)).encode()


def _guarded(route: Route, services: Services) -> Handler:
    """Wrap a handler: authenticate, wait for a request slot, check the scope."""
    scope = route.scope
    operation = route.handler
    authenticate = services.accounts.authenticate
    slots = services.request_slots
    bodies = services.bodies

    async def admit(request: Request, scope: Scope) -> RequestSlot:
        caller = await authenticate(_bearer(request.headers), request.remote or "")
        request[CALLER] = caller
        request.account = caller.account
        if caller.account:
            bind(account=caller.account)
        _hold_body(request, bodies, request.content.total_bytes)
        slot = slots.take_free(caller.account) or await _wait_for_slot(request, slots)
        if not grants(caller.scopes, scope):
            slot.release()
            raise ForbiddenError(scope)
        return slot

    async def serve(request: Request, scope: Scope) -> web.StreamResponse:
        slot = await admit(request, scope)
        try:
            if not request.content.is_eof():
                # A body may be slow: free the slot, and check the token again afterwards.
                slot.release()
                if operation.body is not None:
                    hold = functools.partial(_hold_body, request, bodies)
                    with request.ended_by_disconnect():
                        await receive_body(request, operation.body.max_bytes, hold)
                slot = await admit(request, scope)
            return await operation.run(request)
        finally:
            slot.release()

    async def handle(request: Request) -> web.StreamResponse:
        if scope is None:
            return await operation.run(request)
        try:
            return await serve(request, scope)
        finally:
            if request.body_bytes is not None:
                request.body_bytes.release()

    return handle


async def _wait_for_slot(request: Request, slots: RequestSlots) -> RequestSlot:
    with request.ended_by_disconnect():
        return await slots.take(request.account or "")


def _hold_body(request: Request, bodies: ByteRoom, size: int) -> None:
    """Count the bytes of a request's body for its account.

    Raises:
        BodiesBusyError: The bodies of the account would take more than its share.
    """
    if size <= UNCOUNTED:
        return
    if request.body_bytes is None:
        request.body_bytes = bodies.hold(request.account)
    if not request.body_bytes.grow(size):
        raise BodiesBusyError(retry_after=1)


def _bearer(headers: "CIMultiDictProxy[str]") -> str:
    """Return the bearer token; "" unless there is exactly one."""
    sent = headers.getall(hdrs.AUTHORIZATION, [])
    scheme, _, token = sent[0].partition(" ") if len(sent) == 1 else ("", "", "")
    return token.strip() if scheme.lower() == "bearer" else ""
