"""Regions and node pools, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import BeforeValidator, Field

from controlplane.api.operations.bodies import Body
from controlplane.api.operations.fields import Capabilities
from controlplane.api.operations.operation import Listing, operation
from controlplane.api.operations.services import caller_of, services_of
from controlplane.api.operations.shown import Shown, at
from controlplane.domain.applications.privileges import Privileges
from controlplane.domain.placement.node_pools import NodePool
from controlplane.domain.placement.placement import NodePoolRules, Strategy
from controlplane.storage.tables.hosts.fleet import counted_regions, node_pools
from tiltyard.contract import Capability


class NodePoolBody(Body):
    """The body of PUT /operator/node-pool/{nodePool}: packed fills the fullest host first.

    `hostNetwork` allows applications with `networkMode: host`, `capabilities` those that ask for
    no others.
    """

    strategy: Annotated[Strategy, Field(strict=False)] | None = None
    hostNetwork: bool | None = None  # noqa: N815  # the interface's style
    capabilities: Capabilities | None = None


class ListedRegion(Shown):
    """A region with its number of agents and applications; `declared` by the settings file."""

    name: str
    declared: bool
    agents: int
    applications: int


class ListedNodePool(Shown):
    """A node pool with its number of agents and applications; `declared` by the settings file.

    `hostNetwork`: sessions there may use the host's network. They may have `capabilities`.
    """

    name: str
    strategy: Strategy = at("rules.strategy")
    host_network: bool = False
    capabilities: Annotated[list[Capability], BeforeValidator(sorted)] = at(
        "rules.privileges.capabilities"
    )
    declared: bool = False
    agents: int
    applications: int


@operation(key="regions")
async def describe_regions(request: web.Request) -> Listing[ListedRegion]:
    """List the regions and their usage."""
    services = services_of(request)
    declared = services.fleet_admin.declared["region"]
    found = await services.store.read(counted_regions)
    return Listing(
        list(found.items()),
        lambda one: ListedRegion(name=one[0], declared=one[0] in declared, **one[1]),
    )


@operation()
async def create_region(request: web.Request) -> None:
    """Create a region unless it exists."""
    name = request.match_info["region"]
    await services_of(request).fleet_admin.create_region(caller_of(request), name)


@operation()
async def remove_region(request: web.Request) -> None:
    """Remove an unused region that the settings file does not declare."""
    name = request.match_info["region"]
    await services_of(request).fleet_admin.remove_unused(caller_of(request), "region", name)


@operation(key="nodePools")
async def list_node_pools(request: web.Request) -> Listing[ListedNodePool]:
    """List the node pools and their usage."""
    services = services_of(request)
    declared = services.fleet_admin.declared["node_pool"]
    rules = services.fleet.node_pools

    def show(pool: NodePool) -> ListedNodePool:
        host_network = rules.allowed(pool.name).host_network
        return ListedNodePool.show(pool, host_network=host_network, declared=pool.name in declared)

    return Listing(await services.store.read(node_pools), show)


@operation()
async def set_node_pool(request: web.Request, body: NodePoolBody) -> None:
    """Create a node pool, or change its rules for future starts.

    The defaults are a packed strategy, no access to the host's network, and no capabilities.
    """
    name = request.match_info["nodePool"]
    privileges = Privileges(bool(body.hostNetwork), frozenset(body.capabilities or ()))
    rules = NodePoolRules(body.strategy or Strategy.PACKED, privileges)
    await services_of(request).fleet_admin.set_node_pool(caller_of(request), name, rules)


@operation()
async def remove_node_pool(request: web.Request) -> None:
    """Remove an unused node pool that the settings file does not declare."""
    name = request.match_info["nodePool"]
    await services_of(request).fleet_admin.remove_unused(caller_of(request), "node_pool", name)
