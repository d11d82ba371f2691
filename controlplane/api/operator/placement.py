"""Explanations of placement, for operators."""

from collections.abc import Iterable
from typing import Annotated, Any, ClassVar

from aiohttp import web
from pydantic import BeforeValidator, Field
from typing_extensions import TypedDict

from controlplane.api.operations.fields import Text
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.queries import MAX_KEYS, HostPort, Query
from controlplane.api.operations.services import services_of
from controlplane.api.operations.shown import Rounded, RoundTrip, Shown, at
from controlplane.api.operator.agents import HostResources, ListedPull, ListedStartFailure
from controlplane.domain.applications.pulls import Pull
from controlplane.domain.placement.explanation import Candidate, describe
from controlplane.domain.placement.placement import Obstacle, ObstacleKind, Strategy, fullness
from controlplane.sessions.start_request import Pin
from tiltyard.contract import Protocol

PortKey = Annotated[str, Field(pattern=r"^[1-9][0-9]{0,4}/(tcp|udp)$")]


class PlacementQuery(Query):
    """The query of GET /operator/placement: the start to explain."""

    deep: ClassVar = frozenset({"ports"})

    account: Text
    image: Text
    location: Text
    version: str | None = None
    ports: Annotated[dict[PortKey, HostPort], Field(max_length=MAX_KEYS)] | None = None


class ShownObstacle(TypedDict):
    """A reason why a host cannot take the session; `details` is text with the figures."""

    kind: ObstacleKind
    details: str


def _obstacles(found: Iterable[Obstacle]) -> list[dict[str, str]]:
    return [{"kind": one.kind, "details": describe(one)} for one in found]


class ExplainedHost(Shown):
    """A host of the region and the node pool, with the figures that it was ranked by.

    `rank` begins at 1, null if there are `obstacles`; hosts of equal rank are chosen randomly.
    `pull`: state of a missing image. `failure`: the failed start because of which the host ranks
    behind all others. `inDoubt`: it has not answered a start, or has refused a claim, since its
    last report, and ranks behind these. Figures are null if too little is known of the host.
    `fullness`: used share of its cores or its memory, the greater of both, from 0 to 1. `latency`
    in milliseconds, null if not measured. `reportAge`: seconds since its last report. `free`:
    remaining resources, without those `held` by starts in progress. `starting`: starts that it has
    not answered, at most `startSlots` at a time. `prepared`: prepared containers for the session,
    which needs no slot with one.
    """

    agent: str
    rank: int | None
    obstacles: Annotated[list[ShownObstacle], BeforeValidator(_obstacles)]
    pull: ListedPull | None = None
    failure: ListedStartFailure | None = at("view.failure", None)
    in_doubt: bool | None = at("view.in_doubt", None)
    fullness: float | None = None
    latency: RoundTrip | None = at("view.latency", None)
    report_age: Rounded | None = at("view.report_age", None)
    free: HostResources | None = None
    held: HostResources | None = at("view.held", None)
    free_sessions: int | None = None
    starting: int | None = at("view.starting", None)
    start_slots: int | None = at("view.host.start_slots", None)
    prepared: int | None = at("spare")


class Placement(TypedDict):
    """Where a session would start now: hosts by rank, then those that do not qualify.

    `tag` is the one that it would run, `reservation` what it requests.
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
    """Explain for each host why a session would or would not be placed there.

    `image` is the application's name, `account` its owner; `ports[7777/udp]=25000` pins a host
    port. Nothing is reserved.
    """
    pins = {}
    for key, host in (query.ports or {}).items():
        container, _, protocol = key.partition("/")
        pins[f"ports[{key}]"] = Pin(int(container), host, Protocol(protocol))
    found = await services_of(request).explanations.explain(
        query.account,
        query.image,
        location=query.location,
        version=query.version or None,
        pins=pins,
    )
    application = found.application
    pulls = found.pulls
    rest = {
        "account": application.account,
        "image": application.name,
        "location": query.location,
        "nodePool": application.node_pool,
        "strategy": found.strategy,
        "tag": found.tag.name,
        "reservation": HostResources.show(application.reservation),
    }
    return Listing(found.candidates, lambda one: _host(one, pulls.get(one.agent)), rest)


def _host(candidate: Candidate, pull: Pull | None) -> ExplainedHost:
    view = candidate.view
    more: dict[str, Any] = {}
    if pull is not None:
        more["pull"] = ListedPull.show(pull)
    if view is not None:
        host = view.host
        more |= {
            "fullness": round(fullness(view.host, view.held), 4),
            "free": HostResources.show(host.capacity - host.reserved - view.held),
            "free_sessions": host.free_sessions - view.in_flight,
        }
    return ExplainedHost.show(candidate, **more)
