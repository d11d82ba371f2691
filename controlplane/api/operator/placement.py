"""Why sessions are placed where they are, for operators."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from aiohttp import web
from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.queries import MAX_KEYS, HostPort, Query
from controlplane.api.operations.services import services_of
from controlplane.api.operations.shown import Rounded, Shown, at
from controlplane.api.operator.agents import HostResources, ListedPull, ListedStartFailure
from controlplane.domain.explanation import Candidate, describe
from controlplane.domain.placement import Obstacle, ObstacleKind, Strategy, fullness
from controlplane.fleet.host.images import Pull
from controlplane.sessions.start_request import Pin
from tiltyard.contract import Protocol

PortKey = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}/(tcp|udp)$")]


class PlacementQuery(Query):
    """The query of GET /operator/placement: what a start would ask for."""

    deep: ClassVar = frozenset({"ports"})

    account: Text
    image: Text
    location: Text
    version: str | None = None
    ports: Annotated[dict[PortKey, HostPort], Field(max_length=MAX_KEYS)] | None = None


class ShownObstacle(TypedDict):
    """One thing that keeps the session from a host; `details` is for people, with the figures."""

    kind: ObstacleKind
    details: str


def _obstacles(found: Iterable[Obstacle]) -> list[dict[str, str]]:
    return [{"kind": one.kind, "details": describe(one)} for one in found]


class ExplainedHost(Shown):
    """A host of the region and the node pool, with the figures that it was ranked by.

    `rank` begins at 1, and chance decides among hosts of one rank; it is null where there are
    `obstacles`. `pull` is what becomes of the image where it is missing. `failure` is that of a
    start because of which the host is avoided: it ranks behind all others. The figures are null
    where too little is known of it.
    `fullness` is how much of it is taken, from 0 to 1: of its cores or its memory, the greater.
    `latency` in milliseconds, null where it is not measured. `silent` is the seconds since it
    last reported. `free` is what it has left, `held` what starts under way hold of the rest.
    `starting` are those of them that it has not answered; it takes `startSlots` at a time.
    """

    agent: str
    rank: int | None
    obstacles: Annotated[list[ShownObstacle], BeforeValidator(_obstacles)]
    pull: ListedPull | None = None
    failure: ListedStartFailure | None = at("view.failure", None)
    fullness: float | None = None
    latency: Rounded | None = at("view.latency_ms", None)
    silent: Rounded | None = at("view.silent_seconds", None)
    free: HostResources | None = None
    held: HostResources | None = at("view.held", None)
    free_sessions: int | None = None
    starting: int | None = at("view.starting", None)
    start_slots: int | None = at("view.host.start_slots", None)


class Placement(TypedDict):
    """Where a session would go now: the hosts by rank, then those that do not qualify.

    `tag` is the one that it would run, `reservation` what it asks for.
    """

    account: str
    image: str
    location: str
    nodePool: str
    strategy: Strategy
    tag: str
    reservation: HostResources


@operation(key="hosts", beside=Placement)
async def explain_placement(request: web.Request, query: PlacementQuery) -> Listing[ExplainedHost]:
    """Explain host by host why a session would be placed there, or why not.

    `image` is the application's name and `account` whose it is; `ports[7777/udp]=25000` pins a
    host port. Nothing is reserved.
    """
    pins = {}
    for key, host in (query.ports or {}).items():
        container, _, protocol = key.partition("/")
        pins[f"ports[{key}]"] = Pin(int(container), host, Protocol(protocol))
    found = await services_of(request).explanations.explain(
        query.account, query.image, query.location, query.version or None, pins
    )
    application, pulls = found.application, found.pulls
    rest = {
        "account": application.account,
        "image": application.name,
        "location": found.location,
        "nodePool": application.node_pool,
        "strategy": found.explanation.strategy,
        "tag": found.tag.name,
        "reservation": HostResources.show(application.reservation),
    }
    hosts = found.explanation.candidates
    return Listing(hosts, lambda one: _host(one, pulls.get(one.agent)), rest)


def _host(candidate: Candidate, pull: Pull | None) -> ExplainedHost:
    view = candidate.view
    more: dict[str, Any] = {}
    if pull is not None:
        more["pull"] = ListedPull.show(pull)
    if view is not None:
        host = view.host
        more |= {
            "fullness": round(fullness(view), 4),
            "free": HostResources.show(host.capacity - host.reserved - view.held),
            "free_sessions": host.free_sessions - view.in_flight,
        }
    return ExplainedHost.show(candidate, **more)
