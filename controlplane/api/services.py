"""What handlers reach: the use cases, by one typed key of the application."""

from dataclasses import dataclass

from aiohttp import web

from controlplane.account_store import Caller
from controlplane.accounts import Accounts
from controlplane.applications import Applications
from controlplane.delegation import Delegation
from controlplane.fleet import Fleet
from controlplane.fleet_store import FleetStore
from controlplane.locations import Locations
from controlplane.players import Players
from controlplane.sessions import Sessions
from controlplane.starts import Starts
from controlplane.tags import Tags


@dataclass(frozen=True, slots=True)
class Services:
    """The use cases."""

    environment: str
    accounts: Accounts
    delegation: Delegation
    applications: Applications
    tags: Tags
    locations: Locations
    starts: Starts
    sessions: Sessions
    players: Players
    fleet: Fleet
    fleet_store: FleetStore


SERVICES = web.AppKey("services", Services)
CALLER = web.RequestKey("caller", Caller)


def services_of(request: web.Request) -> Services:
    """Give the use cases to a handler."""
    return request.app[SERVICES]


def caller_of(request: web.Request) -> Caller:
    """Give who sent the request; set for every route that has a scope."""
    return request[CALLER]
