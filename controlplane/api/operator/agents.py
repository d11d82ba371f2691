"""Agents, for operators."""

from typing import cast

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Duration, Name
from controlplane.api.operations.operation import Answer, Listing, one_portion, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.resources.application_bodies import MEBI, NANO
from controlplane.domain.contract import HostReport
from controlplane.domain.durations import parse_duration
from controlplane.domain.start_failures import StartFailure
from controlplane.fleet.host.images import Pull, PullState
from controlplane.fleet.standby_pools import KeptOnHost
from controlplane.operators.agents import AgentState, ShownAgent
from controlplane.operators.enrolment import EnrolmentToken
from controlplane.storage.tables.enrolment import Place
from tiltyard.contract import ErrorReason, Resources
from tiltyard.runtime.clock import to_ms

MAX_IMAGES_SHOWN = 1000
MAX_UNCLAIMED_SHOWN = 20
MAX_FAILURES_SHOWN = 20
MAX_PULLS_SHOWN = 20
MAX_POOLS_SHOWN = 20
"""Of a host: with more than these, the first ones show what is wrong."""


class HostResources(TypedDict):
    """Cores, memory in MiB and whole GPU devices."""

    cpu: float
    ram: float
    gpu: int


class HostFields(TypedDict):
    """What a host reports of itself, all of it null before it has.

    `images` are at most 1000 of `imageCount`, by digest.
    `silentAddresses` are those of its `latencyAddresses` that do not answer ping, `latency` is the
    round trip to the nearest in milliseconds, null where nothing could be measured.
    """

    version: str | None
    publicAddress: str | None
    latencyAddresses: list[str] | None
    silentAddresses: list[str] | None
    latency: float | None
    engineAvailable: bool | None
    engineVersion: str | None
    runcVersion: str | None
    kernelVersion: str | None
    capacity: HostResources | None
    reserved: HostResources | None
    sessions: int | None
    freeSessions: int | None
    images: list[str] | None
    imageCount: int | None


class ListedPull(TypedDict):
    """A pull of an enabled tag's image that is not over.

    `layers` are those known so far, `receivedBytes` compressed. `failures` counts the tries that
    failed; `cause` says why the newest did and `failed` when, in milliseconds since the epoch.
    """

    image: str
    state: PullState
    layers: int
    layersDone: int
    receivedBytes: int
    failures: int
    cause: str | None
    failed: int | None


class KeptWarmPool(TypedDict):
    """What a host is to keep of a warm pool, and what it has: of `standbys` some are `ready`.

    `account`, `image` and `location` are null for a pool that is gone and has standbys left.
    """

    id: str
    account: str | None
    image: str | None
    location: str | None
    size: int
    standbys: int
    ready: int


class ListedStartFailure(TypedDict):
    """Starts of an application that failed on a host since the last that succeeded.

    `reason` and `cause` are those of the newest, which was at `failed`. Until `avoidedUntil` the
    application's starts prefer other hosts. Times are milliseconds since the epoch.
    """

    account: str
    image: str
    reason: ErrorReason
    cause: str
    failures: int
    failed: int
    avoidedUntil: int


class ListedAgent(HostFields):
    """An agent and its host.

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
    """

    name: str
    address: str
    region: str
    nodePool: str
    declared: bool
    state: AgentState
    heard: int | None
    certificateExpires: int | None
    authority: str | None
    revoked: int | None
    lost: int | None
    draining: bool
    drainDeadline: int | None
    drainPending: bool
    pulls: list[ListedPull]
    pullCount: int
    warmPools: list[KeptWarmPool]
    warmPoolCount: int
    unclaimed: list[str]
    unclaimedCount: int
    startFailures: list[ListedStartFailure]
    startFailureCount: int


class ListedAgents(TypedDict):
    """All agents by name."""

    agents: list[ListedAgent]


@operation()
async def list_agents(request: web.Request) -> Listing[ListedAgents]:
    """List the agents with the state and the room of their hosts."""
    agents = await services_of(request).agents.all()
    return Listing("agents", one_portion(agents), _listed)


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


class CreatedEnrolmentToken(TypedDict):
    """A token for one host; its text is shown this once. `expires` in milliseconds."""

    id: str
    token: str
    expires: int


@operation(201)
async def create_enrolment_token(
    request: web.Request, body: EnrolmentTokenBody
) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which one new host of a region enrols, within 15 minutes.

    In the node pool `default` unless one is named.
    """
    place = Place(body.region, body.nodePool or "default")
    enrolment = services_of(request).enrolment
    return _created(await enrolment.make_token(caller_of(request), place))


@operation(201)
async def create_token_to_enrol_again(request: web.Request) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which an agent enrols again, as after its certificate has expired.

    It is good for that agent alone, which stays in its region and node pool.
    """
    enrolment, name = services_of(request).enrolment, request.match_info["agent"]
    return _created(await enrolment.make_token_again(caller_of(request), name))


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


def _created(token: EnrolmentToken) -> Answer[CreatedEnrolmentToken]:
    return Answer({"id": token.id, "token": token.text, "expires": to_ms(token.expire)})


def _listed(agent: ShownAgent) -> ListedAgent:
    row, host = agent.row, agent.host
    return {
        "name": row.name,
        "address": row.address,
        "region": row.region,
        "nodePool": row.node_pool,
        "declared": agent.declared,
        "state": agent.state,
        "heard": agent.heard_ms,
        "certificateExpires": row.certificate_expire_ms,
        "authority": row.authority,
        "revoked": agent.revoked_ms,
        "lost": agent.lost_ms,
        "draining": agent.draining,
        "drainDeadline": agent.drain.deadline_ms,
        "drainPending": agent.drain_pending,
        "pulls": [listed_pull(pull) for pull in agent.pulls[:MAX_PULLS_SHOWN]],
        "pullCount": len(agent.pulls),
        "warmPools": [_kept_pool(kept) for kept in agent.warm_pools[:MAX_POOLS_SHOWN]],
        "warmPoolCount": len(agent.warm_pools),
        "unclaimed": agent.unclaimed[:MAX_UNCLAIMED_SHOWN],
        "unclaimedCount": len(agent.unclaimed),
        "startFailures": [
            listed_start_failure(failure) for failure in agent.start_failures[:MAX_FAILURES_SHOWN]
        ],
        "startFailureCount": len(agent.start_failures),
        **(_NOT_REPORTED if host is None else _reported(host, agent)),
    }


def _kept_pool(kept: KeptOnHost) -> KeptWarmPool:
    pool = kept.pool
    return {
        "id": kept.pool_id,
        "account": None if pool is None else pool.account,
        "image": None if pool is None else pool.application,
        "location": None if pool is None else pool.location,
        "size": kept.size,
        "standbys": kept.standbys,
        "ready": kept.ready,
    }


def listed_start_failure(failure: StartFailure) -> ListedStartFailure:
    """Show the failed starts of an application on a host."""
    return {
        "account": failure.account,
        "image": failure.application,
        "reason": failure.reason,
        "cause": failure.text,
        "failures": failure.count,
        "failed": failure.failed_ms,
        "avoidedUntil": failure.until_ms,
    }


def listed_pull(pull: Pull) -> ListedPull:
    """Show a pull."""
    return {
        "image": pull.image,
        "state": pull.state,
        "layers": pull.progress.layers,
        "layersDone": pull.progress.layers_done,
        "receivedBytes": pull.progress.received_bytes,
        "failures": pull.failures,
        "cause": pull.cause or None,
        "failed": pull.failed_ms,
    }


def _reported(host: HostReport, agent: ShownAgent) -> HostFields:
    return {
        "version": host.version,
        "publicAddress": host.public_address,
        "latencyAddresses": list(host.latency_addresses),
        "silentAddresses": agent.silent_addresses,
        "latency": None if agent.latency_ms is None else round(agent.latency_ms, 3),
        "engineAvailable": host.engine_available,
        "engineVersion": host.engine_version or None,
        "runcVersion": host.runc_version or None,
        "kernelVersion": host.kernel_version or None,
        "capacity": listed_resources(host.capacity),
        "reserved": listed_resources(host.reserved),
        "sessions": agent.live_sessions,
        "freeSessions": host.free_sessions,
        "images": sorted(host.images)[:MAX_IMAGES_SHOWN],
        "imageCount": len(host.images),
    }


_NOT_REPORTED = cast("HostFields", dict.fromkeys(HostFields.__annotations__))


def listed_resources(resources: Resources) -> HostResources:
    """Show resources in the units of the API."""
    return {
        "cpu": resources.nano_cpus / NANO,
        "ram": resources.memory_bytes / MEBI,
        "gpu": resources.gpus,
    }
