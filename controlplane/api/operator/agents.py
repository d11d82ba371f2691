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
    RoundTrip,
    Shown,
    at,
)
from controlplane.domain.access.enrolment import Place
from controlplane.domain.applications.pulls import PullState
from controlplane.domain.durations import parse_duration
from controlplane.operators.agents import AgentState, ShownAgent
from tiltyard.contract import ErrorReason

_Images = Annotated[list[str], BeforeValidator(lambda found: sorted(found)[:1000])]


class HostResources(Shown):
    """Cores, memory in MiB and whole GPU devices."""

    cpu: Cores = at("nano_cpus")
    ram: Mebibytes = at("memory_bytes")
    gpu: int = at("gpus")


class ListedPull(Shown):
    """An unfinished pull of an enabled tag's image.

    `layers` counts those known so far, `receivedBytes` is compressed. `failures` counts failed
    attempts; `cause` and `failed` (milliseconds since the epoch) are those of the latest.
    """

    image: str
    state: PullState
    layers: int = at("progress.layers")
    layers_done: int = at("progress.layers_done")
    received_bytes: int = at("progress.received_bytes")
    failures: int
    cause: Maybe
    failed: Millis | None


class ListedImageAccount(Shown):
    """An account with images on a host, and what they take there unpacked, in MiB."""

    account: str
    size: Mebibytes = at("size_bytes")


class ListedPreparedShape(Shown):
    """The prepared containers for the sessions of an account's application on a host.

    `kept` wait for a start. `cause`: why the latest preparation failed.
    """

    image: str
    kept: int
    cause: Maybe = at("error")


class KeptWarmPool(Shown):
    """A warm pool on a host: `size` standbys are ordered, `standbys` exist, `ready` are claimable.

    `account`, `image` and `location` are null for a removed pool with standbys left.
    """

    id: str = at("pool_id")
    account: str | None = at("pool.account", None)
    image: str | None = at("pool.application", None)
    location: str | None = at("pool.location", None)
    size: int
    standbys: int
    ready: int


class ListedStartFailure(Shown):
    """Failed starts of an application on a host since its last success there.

    `reason`, `cause` and `failed` are those of the latest. Until `avoidedUntil` the application's
    starts prefer other hosts. Times are milliseconds since the epoch.
    """

    account: str
    image: str = at("application")
    reason: ErrorReason
    cause: str = at("text")
    failures: int = at("count")
    failed: Millis
    avoided_until: Millis = at("until_time")


class ListedAgent(Shown):
    """An agent and its host; what the host reports is null before its first report.

    `declared`: by the settings file. `address`: where the control plane connects to. `lastReport`:
    when it last reported, exact to a minute if before this control plane started, null for never.
    `authority`: fingerprint of its certificate's issuer; null, like `certificateExpires`, if it
    was not enrolled. `revoked` is null if it is trusted, `lost` unless its sessions were given up
    for lack of reports. Times are milliseconds since the epoch.
    `draining`: it takes no new sessions; remaining ones are stopped at `drainDeadline`, if any.
    `drainPending`: it has not confirmed the newest order.
    `pulls`: at most 20 of `pullCount`, running ones first, then failing ones.
    `prepared`: at most 20 of `preparedCount`, failing ones first, then those of most containers.
    `warmPools`: at most 20 of `warmPoolCount`, those with standbys here.
    `unclaimed`: at most 20 of `unclaimedCount` internal ids of sessions without a valid ticket or
    a known account, which belong to no account.
    `startFailures`: at most 20 of `startFailureCount`, newest first.
    `unresponsiveAddresses`: the `latencyAddresses` that do not answer ping. `latency`: round trip
    to the nearest one in milliseconds, null if not measured.
    `images`: at most 1000 of `imageCount`, by digest. `imageAccounts`: at most 20 of
    `imageAccountCount`, the one whose images take most first; an image of several accounts counts
    for each. `freeForImages`: MiB that images may take in addition, null if unknown.
    """

    name: str = at("row.name")
    address: str = at("row.address")
    region: str = at("row.region")
    node_pool: str = at("row.node_pool")
    declared: bool
    state: AgentState
    last_report: Millis | None
    certificate_expires: Millis | None = at("row.certificate_expire")
    authority: str | None = at("row.authority")
    revoked: Millis | None = at("row.revoked")
    lost: Millis | None
    draining: bool
    drain_deadline: Millis | None = at("drain.deadline")
    drain_pending: bool
    pulls: First20[ListedPull]
    pull_count: Count = at("pulls")
    prepared: First20[ListedPreparedShape]
    prepared_count: Count = at("prepared")
    warm_pools: First20[KeptWarmPool]
    warm_pool_count: Count = at("warm_pools")
    unclaimed: First20[str]
    unclaimed_count: Count = at("unclaimed")
    start_failures: First20[ListedStartFailure]
    start_failure_count: Count = at("start_failures")
    version: str | None = at("host.version", None)
    public_address: str | None = at("host.public_address", None)
    latency_addresses: list[str] | None = at("host.latency_addresses", None)
    unresponsive_addresses: list[str] | None
    latency: RoundTrip | None
    engine_available: bool | None = at("host.engine_available", None)
    engine_version: Maybe = at("host.engine_version", None)
    runc_version: Maybe = at("host.runc_version", None)
    kernel_version: Maybe = at("host.kernel_version", None)
    capacity: HostResources | None = at("host.capacity", None)
    reserved: HostResources | None = at("host.reserved", None)
    sessions: int | None = at("live_sessions")
    free_sessions: int | None = at("host.free_sessions", None)
    images: _Images | None = at("host.images", None)
    image_count: Count | None = at("host.images", None)
    image_accounts: First20[ListedImageAccount]
    image_account_count: Count = at("image_accounts")
    free_for_images: Mebibytes | None = at("host.free_image_bytes", None)


@operation(key="agents")
async def list_agents(request: web.Request) -> Listing[ListedAgent]:
    """List the agents with the state and capacity of their hosts."""
    agents = await services_of(request).agents.all_agents()
    return Listing(agents, _listed)


@operation()
async def get_agent(request: web.Request) -> Answer[ListedAgent]:
    """Describe an agent."""
    name = request.match_info["agent"]
    return Answer(_listed(await services_of(request).agents.agent_named(name)))


@operation()
async def remove_agent(request: web.Request) -> None:
    """Remove an agent that has no live session and that the settings file does not declare.

    Its ended sessions stay listed, without their logs and files.
    """
    await services_of(request).agents.remove_agent(caller_of(request), request.match_info["agent"])


class EnrolmentTokenBody(Body):
    """The body of POST /operator/enrolment-token: the place of a new host."""

    region: Name
    nodePool: Name | None = None  # noqa: N815  # the name in JSON


class CreatedEnrolmentToken(Shown):
    """A token for one host, shown only now; `expires` in milliseconds since the epoch."""

    id: str
    token: str = at("text")
    expires: Millis = at("expire")


@operation(201)
async def create_enrolment_token(
    request: web.Request, body: EnrolmentTokenBody
) -> Answer[CreatedEnrolmentToken]:
    """Create a token that enrols one new host in a region within 15 minutes.

    The node pool is `default` unless one is named.
    """
    place = Place(body.region, body.nodePool or "default")
    enrolment = services_of(request).enrolment
    token = await enrolment.make_token(caller_of(request), place)
    return Answer(CreatedEnrolmentToken.show(token))


@operation(201)
async def create_token_to_enrol_again(request: web.Request) -> Answer[CreatedEnrolmentToken]:
    """Create a token that enrols an agent again, for example after its certificate expired.

    It is valid for this agent only, which stays in its region and node pool.
    """
    enrolment = services_of(request).enrolment
    name = request.match_info["agent"]
    token = await enrolment.make_token_again(caller_of(request), name)
    return Answer(CreatedEnrolmentToken.show(token))


class DrainBody(Body):
    """The body of POST /operator/agent/{agent}/drain; the rest is stopped at the deadline."""

    deadline: Duration | None = None


@operation()
async def drain_agent(request: web.Request, body: DrainBody) -> Answer[ListedAgent]:
    """Drain a host, so that it takes no new sessions, and describe its agent.

    Remaining sessions are stopped after the `deadline`; without one they run to their end. An
    unreachable host gets the order as soon as it is reachable.
    """
    seconds = None if body.deadline is None else parse_duration(body.deadline)
    agents = services_of(request).agents
    name = request.match_info["agent"]
    caller = caller_of(request)
    shown = await agents.set_drain(caller, name, draining=True, seconds=seconds)
    return Answer(_listed(shown))


@operation()
async def undrain_agent(request: web.Request) -> Answer[ListedAgent]:
    """Undrain a host, so that it takes sessions again, and describe its agent.

    Cancels the orders given here and on the host itself.
    """
    agents = services_of(request).agents
    name = request.match_info["agent"]
    return Answer(_listed(await agents.set_drain(caller_of(request), name, draining=False)))


def _listed(agent: ShownAgent) -> ListedAgent:
    if agent.host:
        return ListedAgent.show(agent)
    return ListedAgent.show(agent, unresponsive_addresses=None, latency=None, sessions=None)
