"""Regions, node pools and registries, for operators."""

from typing import Annotated

from aiohttp import web
from pydantic import AfterValidator, Field, ValidationInfo, field_validator
from typing_extensions import TypedDict

from controlplane.api.bodies import Body
from controlplane.api.operation import Answer, operation
from controlplane.api.services import caller_of, services_of
from controlplane.fleet.placement import Strategy
from controlplane.names import ADDRESS_PATTERN, ADDRESS_RULE, is_registry_address
from controlplane.storage.fleet_store import Registry


def _address(text: str) -> str:
    if not is_registry_address(text):
        raise ValueError(ADDRESS_RULE)
    return text


_Address = Annotated[
    str,
    AfterValidator(_address),
    Field(json_schema_extra={"pattern": f"^{ADDRESS_PATTERN}$"}),
]


class NodePoolBody(Body):
    """The body of PUT /operator/node-pool/{nodePool}: packed fills the fullest host first."""

    strategy: Annotated[Strategy, Field(strict=False)] | None = None


class RegistryBody(Body):
    """The body of PUT /operator/registry/{registry}; aliases are other names of the address."""

    address: _Address
    aliases: list[_Address] | None = None

    @field_validator("aliases")
    @classmethod
    def _each_once(cls, aliases: list[str] | None, info: ValidationInfo) -> list[str] | None:
        names = [str(info.data.get("address", "")), *(aliases or ())]
        if len({name.lower() for name in names}) != len(names):
            raise ValueError("the address and each alias may stand once")
        return aliases


class ListedRegion(TypedDict):
    """A region; `declared` by the settings file, used by so many agents and applications."""

    name: str
    declared: bool
    agents: int
    applications: int


class ListedRegions(TypedDict):
    """All regions by name."""

    regions: list[ListedRegion]


class ListedNodePool(TypedDict):
    """A node pool; `declared` by the settings file, used by so many agents and applications."""

    name: str
    strategy: Strategy
    declared: bool
    agents: int
    applications: int


class ListedNodePools(TypedDict):
    """All node pools by name."""

    nodePools: list[ListedNodePool]


class ListedRegistry(TypedDict):
    """A registry; `declared` by the settings file, used by so many applications."""

    name: str
    address: str
    aliases: list[str]
    declared: bool
    applications: int


class ListedRegistries(TypedDict):
    """All registries by name."""

    registries: list[ListedRegistry]


@operation()
async def describe_regions(request: web.Request) -> Answer[ListedRegions]:
    """List the regions with what uses them."""
    admin = services_of(request).fleet_admin
    regions: list[ListedRegion] = [
        {
            "name": region.name,
            "declared": region.name in admin.declared.regions,
            "agents": region.agents,
            "applications": region.applications,
        }
        for region in await admin.regions()
    ]
    return Answer({"regions": regions})


@operation()
async def create_region(request: web.Request) -> None:
    """Create a region, unless it is there."""
    name = request.match_info["region"]
    await services_of(request).fleet_admin.create_region(caller_of(request), name)


@operation()
async def remove_region(request: web.Request) -> None:
    """Remove a region that nothing uses and that the settings file does not declare."""
    name = request.match_info["region"]
    await services_of(request).fleet_admin.remove_region(caller_of(request), name)


@operation()
async def list_node_pools(request: web.Request) -> Answer[ListedNodePools]:
    """List the node pools with what uses them."""
    admin = services_of(request).fleet_admin
    pools: list[ListedNodePool] = [
        {
            "name": pool.name,
            "strategy": pool.strategy,
            "declared": pool.name in admin.declared.node_pools,
            "agents": pool.agents,
            "applications": pool.applications,
        }
        for pool in await admin.node_pools()
    ]
    return Answer({"nodePools": pools})


@operation()
async def set_node_pool(request: web.Request, body: NodePoolBody) -> None:
    """Create a node pool, or say how it fills its hosts from the next start on.

    Without a strategy it is packed.
    """
    name, strategy = request.match_info["nodePool"], body.strategy or Strategy.PACKED
    await services_of(request).fleet_admin.set_node_pool(caller_of(request), name, strategy)


@operation()
async def remove_node_pool(request: web.Request) -> None:
    """Remove a node pool that nothing uses and that the settings file does not declare."""
    name = request.match_info["nodePool"]
    await services_of(request).fleet_admin.remove_node_pool(caller_of(request), name)


@operation()
async def list_registries(request: web.Request) -> Answer[ListedRegistries]:
    """List the registries with what uses them."""
    admin = services_of(request).fleet_admin
    registries: list[ListedRegistry] = [
        {
            "name": counted.registry.name,
            "address": counted.registry.address,
            "aliases": list(counted.registry.aliases),
            "declared": counted.registry.name in admin.declared.registries,
            "applications": counted.applications,
        }
        for counted in await admin.registries()
    ]
    return Answer({"registries": registries})


@operation()
async def set_registry(request: web.Request, body: RegistryBody) -> None:
    """Create or replace a registry that the settings file does not declare.

    Tags that are enabled go on naming the address that they were enabled with.
    """
    name = request.match_info["registry"]
    registry = Registry(name, body.address, tuple(body.aliases or ()))
    await services_of(request).fleet_admin.set_registry(caller_of(request), registry)


@operation()
async def remove_registry(request: web.Request) -> None:
    """Remove a registry that nothing uses and that the settings file does not declare."""
    name = request.match_info["registry"]
    await services_of(request).fleet_admin.remove_registry(caller_of(request), name)
