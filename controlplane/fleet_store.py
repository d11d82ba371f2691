"""Regions, node pools, registries and agents in the database."""

import json
from dataclasses import dataclass

from sqlite_utils import Database

from controlplane.config import Config
from controlplane.placement import Strategy
from controlplane.store import Store


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


class FleetStore:
    """Transactions on what the operator configured."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def declare(self, config: Config) -> None:
        """Write what the settings file declares; what only the database knows stays."""
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
    for agent in config.agents:
        db.execute(
            "INSERT INTO agent(name, address, region, node_pool) VALUES (?,?,?,?)"
            " ON CONFLICT(name) DO UPDATE SET address=excluded.address,"
            " region=excluded.region, node_pool=excluded.node_pool, removed_ms=NULL",
            (agent.name, agent.address, agent.region, agent.node_pool),
        )
