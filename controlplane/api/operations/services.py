"""Dependencies of the HTTP handlers, under one typed key of the application."""

from dataclasses import dataclass

from aiohttp import web

from controlplane.access.accounts import Accounts
from controlplane.access.delegation import Delegation
from controlplane.access.open_streams import OpenStreams
from controlplane.admission.byte_room import ByteRoom
from controlplane.admission.request_slots import RequestSlots
from controlplane.admission.stream_slots import StreamSlots
from controlplane.applications.applications import Applications
from controlplane.applications.locations import Locations
from controlplane.applications.tags import Tags
from controlplane.applications.warm_pools import WarmPools
from controlplane.domain.access.callers import Caller
from controlplane.events.event_log import EventLog
from controlplane.fleet.fleet import Fleet
from controlplane.metrics.events import EventMetrics
from controlplane.metrics.http import HttpMetrics
from controlplane.operators.accounts import AccountAdmin
from controlplane.operators.agents import Agents
from controlplane.operators.enrolment import Enrolment
from controlplane.operators.fleet import FleetAdmin
from controlplane.operators.placement import Explanations
from controlplane.operators.rotation import Rotation
from controlplane.sessions.sessions import Sessions
from controlplane.sessions.start import Starts
from controlplane.sessions.wait_ready import ReadyStarts
from controlplane.storage.engine.store import Store
from controlplane.webhooks.webhooks import Webhooks


@dataclass(frozen=True, slots=True)
class Services:
    """Dependencies of the HTTP handlers."""

    environment: str
    http: HttpMetrics
    accounts: Accounts
    account_admin: AccountAdmin
    delegation: Delegation
    streams: OpenStreams
    event_log: EventLog
    event_slots: StreamSlots
    event_metrics: EventMetrics
    applications: Applications
    tags: Tags
    warm_pools: WarmPools
    webhooks: Webhooks
    locations: Locations
    explanations: Explanations
    starts: Starts
    ready_starts: ReadyStarts
    sessions: Sessions
    fleet: Fleet
    store: Store
    fleet_admin: FleetAdmin
    agents: Agents
    enrolment: Enrolment
    rotation: Rotation
    request_slots: RequestSlots
    bodies: ByteRoom


SERVICES = web.AppKey("services", Services)
CALLER = web.RequestKey("caller", Caller)


def services_of(request: web.Request) -> Services:
    """Return the dependencies of a handler."""
    return request.app[SERVICES]


def caller_of(request: web.Request) -> Caller:
    """Return the authenticated caller; set for every route with a scope."""
    return request[CALLER]
