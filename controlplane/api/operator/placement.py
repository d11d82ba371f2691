"""Why sessions are placed where they are, for operators."""

from typing import Annotated, ClassVar, cast

from aiohttp import web
from pydantic import Field
from typing_extensions import TypedDict

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, one_portion, operation
from controlplane.api.operations.queries import MAX_KEYS, HostPort, Query
from controlplane.api.operations.services import services_of
from controlplane.api.operator.agents import (
    HostResources,
    ListedPull,
    ListedStartFailure,
    listed_pull,
    listed_resources,
    listed_start_failure,
)
from controlplane.domain.explanation import Candidate, describe
from controlplane.domain.placement import HostView, ObstacleKind, Strategy, fullness
from controlplane.fleet.host.images import Pull
from controlplane.operators.placement import ExplainedPlacement
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

    def pins(self) -> dict[str, Pin]:
        """Translate into the use case's terms, by their names in the query."""
        found = {}
        for key, host in (self.ports or {}).items():
            container, _, protocol = key.partition("/")
            found[f"ports[{key}]"] = Pin(int(container), host, Protocol(protocol))
        return found


class ShownObstacle(TypedDict):
    """One thing that keeps the session from a host; `details` is for people, with the figures."""

    kind: ObstacleKind
    details: str


class HostFigures(TypedDict):
    """What a host was ranked by, all of it null where too little is known of it.

    `fullness` is how much of it is taken, from 0 to 1: of its cores or its memory, the greater.
    `latency` in milliseconds, null where it is not measured. `silent` is the seconds since it
    last reported. `free` is what it has left, `held` what starts under way hold of the rest.
    `starting` are those of them that it has not answered; it takes `startSlots` at a time.
    """

    fullness: float | None
    latency: float | None
    silent: float | None
    free: HostResources | None
    held: HostResources | None
    freeSessions: int | None
    starting: int | None
    startSlots: int | None


class ExplainedHost(HostFigures):
    """A host of the region and the node pool.

    `rank` begins at 1, and chance decides among hosts of one rank; it is null where there are
    `obstacles`. `pull` is what becomes of the image where it is missing. `failure` is that of a
    start because of which the host is avoided: it ranks behind all others.
    """

    agent: str
    rank: int | None
    obstacles: list[ShownObstacle]
    pull: ListedPull | None
    failure: ListedStartFailure | None


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
    hosts: list[ExplainedHost]


@operation()
async def explain_placement(request: web.Request, query: PlacementQuery) -> Listing[Placement]:
    """Explain host by host why a session would be placed there, or why not.

    `image` is the application's name and `account` whose it is; `ports[7777/udp]=25000` pins a
    host port. Nothing is reserved.
    """
    found = await services_of(request).explanations.explain(
        query.account, query.image, query.location, query.version or None, query.pins()
    )
    return _shown(found)


def _shown(found: ExplainedPlacement) -> Listing[Placement]:
    application, pulls = found.application, found.pulls
    rest = {
        "account": application.account,
        "image": application.name,
        "location": found.location,
        "nodePool": application.node_pool,
        "strategy": found.explanation.strategy,
        "tag": found.tag.name,
        "reservation": listed_resources(application.reservation),
    }
    hosts = one_portion(found.explanation.candidates)
    return Listing("hosts", hosts, lambda one: _host(one, pulls.get(one.agent)), rest)


def _host(candidate: Candidate, pull: Pull | None) -> ExplainedHost:
    failure = None if candidate.view is None else candidate.view.failure
    return {
        "agent": candidate.agent,
        "rank": candidate.rank,
        "obstacles": [
            {"kind": obstacle.kind, "details": describe(obstacle)}
            for obstacle in candidate.obstacles
        ],
        "pull": None if pull is None else listed_pull(pull),
        "failure": None if failure is None else listed_start_failure(failure),
        **(_UNKNOWN if candidate.view is None else _figures(candidate.view)),
    }


def _figures(view: HostView) -> HostFigures:
    host = view.host
    return {
        "fullness": round(fullness(view), 4),
        "latency": None if view.latency_ms is None else round(view.latency_ms, 3),
        "silent": round(view.silent_seconds, 3),
        "free": listed_resources(host.capacity - host.reserved - view.held),
        "held": listed_resources(view.held),
        "freeSessions": host.free_sessions - view.in_flight,
        "starting": view.starting,
        "startSlots": host.start_slots,
    }


_UNKNOWN = cast("HostFigures", dict.fromkeys(HostFigures.__annotations__))
