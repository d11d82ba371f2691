"""Regions, node pools, registries and agents in the database."""

import json
from collections.abc import Iterable
from dataclasses import dataclass

from sqlite_utils import Database

from controlplane.config import Config
from controlplane.errors import StoreError
from controlplane.fleet.placement import Strategy
from controlplane.storage.store import Store


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent: where to dial it and where it belongs."""

    name: str
    address: str
    region: str
    node_pool: str


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that the operator configured; `address` is `host[:port]`."""

    name: str
    address: str
    aliases: tuple[str, ...]

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What may stand before a repository's name and means this registry."""
        return (self.address, *self.aliases)


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another registry has this address, or this alias."""

    address: str
    by: str


class FleetStore:
    """Transactions on what the operator configured."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def declare(self, config: Config) -> None:
        """Write what the settings file declares; what only the database knows stays.

        Raises:
            StoreError: Two registries would claim one address; nothing was changed.
        """
        await self._store.run(lambda db: _declare(db, config))

    async def agents(self) -> list[AgentRow]:
        """Read all agents that were not removed."""
        sql = (
            "SELECT name, address, region, node_pool FROM agent WHERE removed_ms IS NULL"
            " ORDER BY name"
        )
        return await self._store.run(lambda db: [AgentRow(*row) for row in db.execute(sql)])

    async def regions(self) -> list[str]:
        """Read the names of all regions in order."""
        sql = "SELECT name FROM region ORDER BY name"
        return await self._store.run(lambda db: [row[0] for row in db.execute(sql)])

    async def strategies(self) -> dict[str, Strategy]:
        """Read each node pool's way of filling its hosts."""
        sql = "SELECT name, strategy FROM node_pool"
        return await self._store.run(lambda db: {n: Strategy(s) for n, s in db.execute(sql)})

    async def registries(self) -> dict[str, Registry]:
        """Read all registries by name."""
        sql = "SELECT name, address, aliases FROM registry"
        return await self._store.run(
            lambda db: {row[0]: registry_of(row) for row in db.execute(sql)}
        )

    async def registry(self, name: str) -> Registry | None:
        """Read one registry."""

        def transaction(db: Database) -> Registry | None:
            sql = "SELECT name, address, aliases FROM registry WHERE name = ?"
            row = db.execute(sql, (name,)).fetchone()
            return registry_of(row) if row else None

        return await self._store.run(transaction)


def registry_of(row: tuple[str, str, str]) -> Registry:
    """Read a row of name, address and aliases."""
    name, address, aliases = row
    return Registry(name, address, tuple(json.loads(aliases)))


def find_claim(wanted: Registry, others: Iterable[Registry]) -> Claimed | None:
    """Find what another registry claims of what one wants.

    Names of hosts do not differ by case.
    """
    taken = {prefix.lower(): other.name for other in others for prefix in other.prefixes}
    for prefix in wanted.prefixes:
        if prefix.lower() in taken:
            return Claimed(prefix, taken[prefix.lower()])
    return None


def _declare(db: Database, config: Config) -> None:
    for region in config.regions:
        db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (region,))
    for pool in config.node_pools:
        db.execute("INSERT OR IGNORE INTO node_pool(name) VALUES (?)", (pool,))
    for registry in config.registries:
        db.execute(
            "INSERT INTO registry(name, address, aliases) VALUES (?,?,?) ON CONFLICT(name)"
            " DO UPDATE SET address=excluded.address, aliases=excluded.aliases",
            (registry.name, registry.address, json.dumps(registry.aliases)),
        )
    _check_claims(db, config)
    for agent in config.agents:
        db.execute(
            "INSERT INTO agent(name, address, region, node_pool) VALUES (?,?,?,?)"
            " ON CONFLICT(name) DO UPDATE SET address=excluded.address,"
            " region=excluded.region, node_pool=excluded.node_pool, removed_ms=NULL",
            (agent.name, agent.address, agent.region, agent.node_pool),
        )


def _check_claims(db: Database, config: Config) -> None:
    """Refuse a file that declares what a registry claims which was made by the API.

    Neither wins: an image would be looked for at another place than its tag was enabled at.
    """
    declared = {registry.name for registry in config.registries}
    rows = db.execute("SELECT name, address, aliases FROM registry").fetchall()
    made = [registry_of(row) for row in rows if row[0] not in declared]
    for entry in config.registries:
        claimed = find_claim(Registry(entry.name, entry.address, entry.aliases), made)
        if claimed is not None:
            raise StoreError(
                f"cannot declare registry {entry.name!r}: because {claimed.by!r}, which was made"
                f" by the API, claims {claimed.address}: take the one out of the settings file,"
                " or start without it and change or remove the other by the API"
            )
