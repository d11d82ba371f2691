"""Agents, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Duration, Name
from controlplane.api.operations.operation import Answer, Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import (
    Cores,
    Count,
    First20,
    Maybe,
    Mebibytes,
    Millis,
    Rounded,
    Shown,
    at,
)
from controlplane.domain.durations import parse_duration
from controlplane.fleet.host.images import PullState
from controlplane.operators.agents import AgentState, ShownAgent
from controlplane.storage.tables.enrolment import Place
from tiltyard.contract import ErrorReason

_Images = Annotated[list[str], BeforeValidator(lambda found: sorted(found)[:1000])]


class HostResources(Shown):
    """Cores, memory in MiB and whole GPU devices."""

    cpu: Cores = at("nano_cpus")
    ram: Mebibytes = at("memory_bytes")
    gpu: int = at("gpus")


class ListedPull(Shown):
    """A pull of an enabled tag's image that is not over.

    `layers` are those known so far, `receivedBytes` compressed. `failures` counts the tries that
    failed; `cause` says why the newest did and `failed` when, in milliseconds since the epoch.
    """

    image: str
    state: PullState
    layers: int = at("progress.layers")
    layers_done: int = at("progress.layers_done")
    received_bytes: int = at("progress.received_bytes")
    failures: int
    cause: Maybe
    failed: int | None = at("failed_ms")


class KeptWarmPool(Shown):
    """What a host is to keep of a warm pool, and what it has: of `standbys` some are `ready`.

    `account`, `image` and `location` are null for a pool that is gone and has standbys left.
    """

    id: str = at("pool_id")
    account: str | None = at("pool.account", None)
    image: str | None = at("pool.application", None)
    location: str | None = at("pool.location", None)
    size: int
    standbys: int
    ready: int


class ListedStartFailure(Shown):
    """Starts of an application that failed on a host since the last that succeeded.

    `reason` and `cause` are those of the newest, which was at `failed`. Until `avoidedUntil` the
    application's starts prefer other hosts. Times are milliseconds since the epoch.
    """

    account: str
    image: str = at("application")
    reason: ErrorReason
    cause: str = at("text")
    failures: int = at("count")
    failed: int = at("failed_ms")
    avoided_until: int = at("until_ms")


class ListedAgent(Shown):
    """An agent and its host; what the host reports of itself is null before it has.

    `declared`: by the settings file. `address` is where it is dialled. `heard` is when it last
    reported, exact to a minute where that was before this control plane started, null for never.
    `authority` is the fingerprint of the one that signed its certificate; it is null for one that
    was not enrolled, as `certificateExpires`. `revoked` is null for a trusted one, `lost` for one
    whose sessions were not given up for lack of reports. Times are milliseconds since
    the epoch.
    `draining`: it takes no new sessions; those that are left are stopped at `drainDeadline`, if
    there is one. `drainPending`: it has not yet said that it has the newest order.
    `pulls` are at most 20 of `pullCount`: those being made first, then those that fail.
    `warmPools` are at most 20 of `warmPoolCount`: those of which it keeps standbys.
    `unclaimed` are at most 20 of `unclaimedCount`: internal ids of sessions that live there
    without a valid ticket or a known account, so that they belong to no account.
    `startFailures` are at most 20 of `startFailureCount`, the newest first.
    `silentAddresses` are those of its `latencyAddresses` that do not answer ping, `latency` is the
    round trip to the nearest in milliseconds, null where nothing could be measured.
    `images` are at most 1000 of `imageCount`, by digest.
    """

    name: str = at("row.name")
    address: str = at("row.address")
    region: str = at("row.region")
    node_pool: str = at("row.node_pool")
    declared: bool
    state: AgentState
    heard: int | None = at("heard_ms")
    certificate_expires: int | None = at("row.certificate_expire_ms")
    authority: str | None = at("row.authority")
    revoked: int | None = at("revoked_ms")
    lost: int | None = at("lost_ms")
    draining: bool
    drain_deadline: int | None = at("drain.deadline_ms")
    drain_pending: bool
    pulls: First20[ListedPull]
    pull_count: Count = at("pulls")
    warm_pools: First20[KeptWarmPool]
    warm_pool_count: Count = at("warm_pools")
    unclaimed: First20[str]
    unclaimed_count: Count = at("unclaimed")
    start_failures: First20[ListedStartFailure]
    start_failure_count: Count = at("start_failures")
    version: str | None = at("host.version", None)
    public_address: str | None = at("host.public_address", None)
    latency_addresses: list[str] | None = at("host.latency_addresses", None)
    silent_addresses: list[str] | None
    latency: Rounded | None = at("latency_ms")
    engine_available: bool | None = at("host.engine_available", None)
    engine_version: Maybe = at("host.engine_version", None)
    runc_version: Maybe = at("host.runc_version", None)
    kernel_version: Maybe = at("host.kernel_version", None)
    capacity: HostResources | None = at("host.capacity", None)
    reserved: HostResources | None = at("host.reserved", None)
    sessions: int | None = at("live_sessions")
    free_sessions: int | None = at("host.free_sessions", None)
    images: Annotated[list[str], BeforeValidator(lambda found: sorted(found)[:1000])] | None = at(
        "host.images", None
    )
    image_count: Count | None = at("host.images", None)


@operation(key="agents")
async def list_agents(request: web.Request) -> Listing[ListedAgent]:
    """List the agents with the state and the room of their hosts."""
    agents = await services_of(request).agents.all()
    return Listing(agents, _listed)


@operation()
async def get_agent(request: web.Request) -> Answer[ListedAgent]:
    """Describe an agent."""
    name = request.match_info["agent"]
    return Answer(_listed(await services_of(request).agents.get(name)))


@operation()
async def remove_agent(request: web.Request) -> None:
    """Remove an agent that has no live session and that the settings file does not declare.

    Its ended sessions stay listed; their logs and files are out of reach.
    """
    await services_of(request).agents.remove(caller_of(request), request.match_info["agent"])


class EnrolmentTokenBody(Body):
    """The body of POST /operator/enrolment-token: where a new host belongs."""

    region: Name
    nodePool: Name | None = None  # noqa: N815  # the name in JSON


class CreatedEnrolmentToken(Shown):
    """A token for one host; its text is shown this once. `expires` in milliseconds."""

    id: str
    token: str = at("text")
    expires: Millis = at("expire")


@operation(201)
async def create_enrolment_token(
    request: web.Request, body: EnrolmentTokenBody
) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which one new host of a region enrols, within 15 minutes.

    In the node pool `default` unless one is named.
    """
    place = Place(body.region, body.nodePool or "default")
    enrolment = services_of(request).enrolment
    token = await enrolment.make_token(caller_of(request), place)
    return Answer(CreatedEnrolmentToken.show(token))


@operation(201)
async def create_token_to_enrol_again(request: web.Request) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which an agent enrols again, as after its certificate has expired.

    It is good for that agent alone, which stays in its region and node pool.
    """
    enrolment, name = services_of(request).enrolment, request.match_info["agent"]
    token = await enrolment.make_token_again(caller_of(request), name)
    return Answer(CreatedEnrolmentToken.show(token))


@operation()
async def revoke_agent(request: web.Request) -> None:
    """Trust an agent no more: its host is compromised. Idempotent, and not to be called off.

    It is not dialled from now on, and its streams are broken off. What ran there is `dead`. It
    stays listed until it is removed.
    """
    name = request.match_info["agent"]
    await services_of(request).enrolment.revoke(caller_of(request), name)


class DrainBody(Body):
    """The body of POST /operator/agent/{agent}/drain: after what time the rest is stopped."""

    deadline: Duration | None = None


@operation()
async def drain_agent(request: web.Request, body: DrainBody) -> Answer[ListedAgent]:
    """Have a host take no new sessions, and describe its agent.

    What is left is stopped after the `deadline`; without one, sessions end when they end. The
    order is kept: a host that is unreachable now gets it once it is reachable.
    """
    seconds = None if body.deadline is None else parse_duration(body.deadline)
    agents, name = services_of(request).agents, request.match_info["agent"]
    return Answer(_listed(await agents.drain(caller_of(request), name, seconds)))


@operation()
async def undrain_agent(request: web.Request) -> Answer[ListedAgent]:
    """Have a host take sessions again, and describe its agent.

    It calls off what was ordered here and what was ordered on the host.
    """
    agents, name = services_of(request).agents, request.match_info["agent"]
    return Answer(_listed(await agents.undrain(caller_of(request), name)))


def _listed(agent: ShownAgent) -> ListedAgent:
    unknown = {"silent_addresses": None, "latency": None, "sessions": None}
    return ListedAgent.show(agent, **({} if agent.host else unknown))
