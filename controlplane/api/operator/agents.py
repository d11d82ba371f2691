"""Agents, for operators."""

from aiohttp import web
from typing_extensions import TypedDict

from controlplane.api.application_bodies import MEBI, NANO
from controlplane.api.operation import Answer, operation
from controlplane.api.services import caller_of, services_of
from controlplane.fleet.agents import AgentState, ShownAgent
from controlplane.fleet.contract import Host, Resources
from controlplane.fleet.pulls import Pull, PullState

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
    heard, in milliseconds since the epoch, null when not since this control plane started.
    `pulls` are at most 20 of `pullCount`: those being made first, then those that fail.
    """

    name: str
    address: str
    region: str
    nodePool: str
    declared: bool
    state: AgentState
    heard: int | None
    pulls: list[ListedPull]
    pullCount: int


class ListedAgents(TypedDict):
    """All agents by name."""

    agents: list[ListedAgent]


@operation()
async def list_agents(request: web.Request) -> Answer[ListedAgents]:
    """List the agents with the state and the room of their hosts."""
    return Answer({"agents": [_listed(agent) for agent in services_of(request).agents.all()]})


@operation()
async def get_agent(request: web.Request) -> Answer[ListedAgent]:
    """Describe an agent."""
    return Answer(_listed(services_of(request).agents.get(request.match_info["agent"])))


@operation()
async def remove_agent(request: web.Request) -> None:
    """Remove an agent that has no live session and that the settings file does not declare.

    Its ended sessions stay listed; their logs and files are out of reach.
    """
    await services_of(request).agents.remove(caller_of(request), request.match_info["agent"])


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
        "pulls": [_listed_pull(pull) for pull in agent.pulls[:MAX_PULLS_SHOWN]],
        "pullCount": len(agent.pulls),
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
