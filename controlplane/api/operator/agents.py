"""Agents, for operators."""

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.application_bodies import MEBI, NANO
from controlplane.api.bodies import Body
from controlplane.api.fields import Text
from controlplane.api.operation import NO_STORE, Answer, operation
from controlplane.api.services import caller_of, services_of
from controlplane.enrolment import EnrolmentToken
from controlplane.fleet.agents import AgentState, ShownAgent
from controlplane.fleet.contract import Host, Resources
from controlplane.fleet.pulls import Pull, PullState
from controlplane.storage.enrolment_store import Place

MAX_UNCLAIMED_SHOWN = 20
MAX_PULLS_SHOWN = 20
"""Of a host: who has more than these wants to know why the first ones do not end."""


class HostResources(TypedDict):
    """Cores, memory in MiB and whole GPU devices."""

    cpu: float
    ram: float
    gpu: int


class HostFields(TypedDict):
    """What a host reports of itself, all of it null before it has; `images` are by digest."""

    version: str | None
    publicAddress: str | None
    latencyAddresses: list[str] | None
    draining: bool | None
    engineAvailable: bool | None
    capacity: HostResources | None
    reserved: HostResources | None
    sessions: int | None
    freeSessions: int | None
    images: list[str] | None


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


class ListedAgent(HostFields):
    """An agent and its host.

    `declared`: by the settings file. `address` is where it is dialled. `heard` is when it was last
    heard, null when not since this control plane started. `certificateExpires` is null for one
    that was not enrolled, `revoked` for a trusted one. Times are milliseconds since the epoch.
    `pulls` are at most 20 of `pullCount`: those being made first, then those that fail.
    `unclaimed` are at most 20 of `unclaimedCount`: internal ids of sessions that live there
    without a valid ticket, so that they are nobody's.
    """

    name: str
    address: str
    region: str
    nodePool: str
    declared: bool
    state: AgentState
    heard: int | None
    certificateExpires: int | None
    revoked: int | None
    pulls: list[ListedPull]
    pullCount: int
    unclaimed: list[str]
    unclaimedCount: int


class ListedAgents(TypedDict):
    """All agents by name."""

    agents: list[ListedAgent]


@operation()
async def list_agents(request: web.Request) -> Answer[ListedAgents]:
    """List the agents with the state and the room of their hosts."""
    return Answer(
        {"agents": [_listed(agent) for agent in await services_of(request).agents.all()]}
    )


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

    region: Text
    nodePool: Text | None = None  # noqa: N815  # the name in JSON


class CreatedEnrolmentToken(TypedDict):
    """A token for one host; its text is shown this once. `expires` in milliseconds."""

    id: str
    token: str
    expires: int


@operation(201, headers=NO_STORE)
async def create_enrolment_token(
    request: web.Request, body: EnrolmentTokenBody
) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which one new host of a region enrols, within 15 minutes.

    In the node pool `default` unless one is named.
    """
    place = Place(body.region, body.nodePool or "default")
    enrolment = services_of(request).enrolment
    return _created(await enrolment.make_token(caller_of(request), place))


@operation(201, headers=NO_STORE)
async def create_token_to_enrol_again(request: web.Request) -> Answer[CreatedEnrolmentToken]:
    """Make a token with which an agent enrols again, as after its certificate has expired.

    It is good for that agent alone, which stays in its region and node pool.
    """
    enrolment, name = services_of(request).enrolment, request.match_info["agent"]
    return _created(await enrolment.make_token_again(caller_of(request), name))


@operation()
async def revoke_agent(request: web.Request) -> None:
    """Trust an agent no more: its host is compromised. Idempotent, and not to be called off.

    Nobody dials it from now on, and its streams are broken off. What ran there is `dead`. It stays
    listed until it is removed.
    """
    name = request.match_info["agent"]
    await services_of(request).enrolment.revoke(caller_of(request), name)


def _created(token: EnrolmentToken) -> Answer[CreatedEnrolmentToken]:
    return Answer({"id": token.id, "token": token.text, "expires": token.expire_ms}, NO_STORE)


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
        "revoked": agent.revoked_ms,
        "pulls": [_listed_pull(pull) for pull in agent.pulls[:MAX_PULLS_SHOWN]],
        "pullCount": len(agent.pulls),
        "unclaimed": agent.unclaimed[:MAX_UNCLAIMED_SHOWN],
        "unclaimedCount": len(agent.unclaimed),
        **(_NOT_REPORTED if host is None else _reported(host, agent.live_sessions)),
    }


def _listed_pull(pull: Pull) -> ListedPull:
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


def _reported(host: Host, live_sessions: int) -> HostFields:
    return {
        "version": host.version,
        "publicAddress": host.public_address,
        "latencyAddresses": list(host.latency_addresses),
        "draining": host.draining,
        "engineAvailable": host.engine_available,
        "capacity": _resources(host.capacity),
        "reserved": _resources(host.reserved),
        "sessions": live_sessions,
        "freeSessions": host.free_sessions,
        "images": sorted(host.images),
    }


_NOT_REPORTED: HostFields = {
    "version": None,
    "publicAddress": None,
    "latencyAddresses": None,
    "draining": None,
    "engineAvailable": None,
    "capacity": None,
    "reserved": None,
    "sessions": None,
    "freeSessions": None,
    "images": None,
}


def _resources(resources: Resources) -> HostResources:
    return {
        "cpu": resources.nano_cpus / NANO,
        "ram": resources.memory_bytes / MEBI,
        "gpu": resources.gpus,
    }
