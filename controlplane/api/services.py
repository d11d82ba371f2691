"""What handlers reach: the use cases, by one typed key of the application."""

from dataclasses import dataclass

from aiohttp import web

from controlplane.account_admin import AccountAdmin
from controlplane.accounts import Accounts
from controlplane.all_sessions import AllSessions
from controlplane.applications import Applications
from controlplane.delegation import Delegation
from controlplane.enrolment import Enrolment
from controlplane.explanations import Explanations
from controlplane.fleet.agents import Agents
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.fleet_admin import FleetAdmin
from controlplane.locations import Locations
from controlplane.metrics.http import HttpMetrics
from controlplane.open_streams import OpenStreams
from controlplane.players import Players
from controlplane.ready_starts import ReadyStarts
from controlplane.rotation import Rotation
from controlplane.sessions import Sessions
from controlplane.starts import Starts
from controlplane.storage.account_store import Caller
from controlplane.storage.audit_store import AuditStore
from controlplane.storage.fleet_store import FleetStore
from controlplane.tags import Tags
from controlplane.turns import Turns
from controlplane.warm_pools import WarmPools


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases."""

    environment: str
    http: HttpMetrics
    accounts: Accounts
    account_admin: AccountAdmin
    delegation: Delegation
    streams: OpenStreams
    audit: AuditStore
    applications: Applications
    tags: Tags
    warm_pools: WarmPools
    locations: Locations
    explanations: Explanations
    starts: Starts
    ready_starts: ReadyStarts
    sessions: Sessions
    all_sessions: AllSessions
    players: Players
    fleet: Fleet
    fleet_store: FleetStore
    fleet_admin: FleetAdmin
    agents: Agents
    enrolment: Enrolment
    rotation: Rotation
    turns: Turns


SERVICES = web.AppKey("services", Services)
CALLER = web.RequestKey("caller", Caller)


def services_of(request: web.Request) -> Services:
    """Give the use cases to a handler."""
    return request.app[SERVICES]


def caller_of(request: web.Request) -> Caller:
    """Give who sent the request; set for every route that has a scope."""
    return request[CALLER]
