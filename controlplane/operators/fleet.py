"""Use cases of operators on regions, node pools and registries.

Every start creates what the settings file declares, so that only the file can remove it.
"""

from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import ConflictError, InvalidRequestError, Violation
from controlplane.domain.names import NAME_RULE, is_name
from controlplane.domain.placement.placement import NodePoolRules
from controlplane.fleet.fleet import Fleet
from controlplane.registries.logins import Logins
from controlplane.settings.model import Config
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications import registries
from controlplane.storage.tables.hosts import fleet as rows
from tiltyard.runtime.clock import Clock

Declared = Mapping[str, frozenset[str]]  # The names that the settings file declares, by table


def declared_in(config: Config) -> Declared:
    """Collect the names from the settings."""
    return {
        "region": frozenset(config.regions),
        "node_pool": frozenset(config.node_pools),
        "registry": frozenset(registry.name for registry in config.registries),
        "agent": frozenset(agent.name for agent in config.agents),
    }


@dataclass(frozen=True, slots=True)
class FleetAdmin:
    """Use cases on regions, node pools and registries, for authorized callers."""

    store: Store
    fleet: Fleet
    _: KW_ONLY
    logins: Logins
    declared: Declared
    clock: Clock

    async def create_region(self, caller: Caller, name: str) -> None:
        """Create a region. Idempotent.

        Raises:
            InvalidRequestError: The name is invalid.
        """
        _check_name("region", name)
        await self.store.run(rows.create_region, name, caller.actor, self.clock.time())

    async def set_node_pool(self, caller: Caller, name: str, rules: NodePoolRules) -> None:
        """Create a node pool, or change its rules from the next start on. Idempotent.

        The settings file may allow host networking even if these rules do not.

        Raises:
            InvalidRequestError: The name is invalid.
        """
        _check_name("nodePool", name)
        now = self.clock.time()
        await self.store.run(rows.set_node_pool, name, rules, actor=caller.actor, now=now)
        await self.fleet.caught_up()

    async def set_registry(self, caller: Caller, wanted: Registry, password: str | None) -> None:
        """Create or replace a registry. Idempotent.

        With a user name but no password the stored password is kept if it was given for the same
        user, address, certificates, token hosts and permission for private addresses.

        Raises:
            InvalidRequestError: The name or a certificate is invalid, or there is no stored
                password to keep.
            ConflictError: The settings file declares it, or another registry claims its address
                or one of its aliases.
        """
        _check_name("registry", wanted.name)
        check_undeclared("registry", wanted.name, self.declared)
        ready = await self.logins.ready(wanted, password)
        await self.store.run(registries.put, ready, caller.actor, self.clock.time())

    async def remove_unused(self, caller: Caller, table: str, name: str) -> None:
        """Remove a region, node pool or registry.

        Raises:
            NotFoundError: It does not exist.
            ConflictError: The settings file declares it, or an agent or application uses it.
        """
        check_undeclared(table, name, self.declared)
        now = self.clock.time()
        await self.store.run(rows.remove, table, name, actor=caller.actor, now=now)
        await self.fleet.caught_up()


def check_undeclared(table: str, name: str, declared: Declared) -> None:
    """Check that the settings file does not declare a name.

    Raises:
        ConflictError: The settings file declares it.
    """
    if name in declared[table]:
        kind = table.replace("_", " ")
        raise ConflictError(f"the settings file declares the {kind} {name!r}: change it there")


def _check_name(field: str, name: str) -> None:
    if not is_name(name):
        raise InvalidRequestError((Violation(field, NAME_RULE),))
