"""Regions, node pools, registries and agents in the database."""

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from controlplane.domain.contract import Drain
from controlplane.domain.errors import StoreError
from controlplane.domain.placement import NodePoolRules, Strategy
from controlplane.settings.model import Config
from controlplane.settings.registries import RegistryConfig
from controlplane.storage.engine.store import Database, Store


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent: where to dial it and where it belongs.

    An enrolled one has an `id`, which its certificate names, and a time at which that expires;
    `authority` is the fingerprint of the one that signed it, and `trusts_former` is whether the
    host trusts another besides. The rest is what was known of its host when this was
    read: its drain, when it last reported (exact to a minute), for how long it has not since,
    and when its sessions were given up for that.
    """

    name: str
    address: str
    region: str
    node_pool: str
    id: str | None = None
    certificate_expire_ms: int | None = None
    drain_revision: int = 0
    draining: int = 0
    drain_deadline_ms: int | None = None
    heard_ms: int | None = None
    silent_ms: int = 0
    lost_ms: int | None = None
    authority: str | None = None
    trusts_former: int = 0

    @property
    def drain(self) -> Drain:
        """The newest order to drain its host or not."""
        return Drain(self.drain_revision, bool(self.draining), self.drain_deadline_ms)


@dataclass(frozen=True, slots=True)
class Registry:
    """A registry that the operator configured; `address` is `host[:port]`.

    The rest is how to log in there, as `registries/endpoint.py` says; `sealed` is its password as
    `registries/vault.py` sealed it, and nothing without a `username`.
    """

    name: str
    address: str
    aliases: tuple[str, ...]
    username: str = ""
    sealed: bytes = field(default=b"", repr=False)
    auth_hosts: tuple[str, ...] = ()
    private: bool = False
    ca: str = field(default="", repr=False)

    @property
    def prefixes(self) -> tuple[str, ...]:
        """What may stand before a repository's name and means this registry."""
        return (self.address, *self.aliases)

    def may_pass_on_password(self, wanted: "Registry") -> bool:
        """Return whether the password given for this version may be used for another version.

        Not where it could reach another host, by another address, other resolution or another
        certificate authority, or serve another user name. Pure.
        """
        return (
            bool(self.sealed)
            and wanted.address.lower() == self.address.lower()
            and (wanted.username, wanted.ca) == (self.username, self.ca)
            and set(wanted.auth_hosts) <= set(self.auth_hosts)
            and wanted.private <= self.private
        )


@dataclass(frozen=True, slots=True)
class Claimed:
    """Another registry has this address, or this alias."""

    address: str
    by: str


REGISTRY_COLUMNS = "name, address, aliases, username, sealed_password, auth_hosts, private, ca"
AGENT_COLUMNS = (
    "name, address, region, node_pool, id, certificate_expire_ms, drain_revision, draining,"
    " drain_deadline_ms, heard_ms, silent_ms, lost_ms, authority, trusts_former"
)
ALL_REGISTRIES = f"SELECT {REGISTRY_COLUMNS} FROM registry"  # noqa: S608  # a constant


class FleetStore:
    """Transactions on what the operator configured."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def declare(self, config: Config, sealed: Mapping[str, bytes] | None = None) -> None:
        """Write what the settings file declares; what only the database knows stays.

        `sealed` has the passwords of the declared registries that have one, by name.

        Raises:
            StoreError: Two registries would claim one address; nothing was changed.
        """
        declared = [_declared(entry, sealed or {}) for entry in config.registries]
        await self._store.run(lambda db: _declare(db, config, declared))

    async def agents(self) -> list[AgentRow]:
        """Read all agents that were neither removed nor revoked."""
        sql = (
            f"SELECT {AGENT_COLUMNS} FROM agent WHERE removed_ms IS NULL AND revoked_ms IS NULL"  # noqa: S608
            " ORDER BY name"
        )
        return await self._store.run(lambda db: [AgentRow(*row) for row in db.execute(sql)])

    async def regions(self) -> list[str]:
        """Read the names of all regions in order."""
        sql = "SELECT name FROM region ORDER BY name"
        return await self._store.run(lambda db: [row[0] for row in db.execute(sql)])

    async def node_pool_rules(self) -> dict[str, NodePoolRules]:
        """Read the rules of each node pool."""
        sql = "SELECT name, strategy, host_network FROM node_pool"
        return await self._store.run(
            lambda db: {
                name: NodePoolRules(Strategy(strategy), bool(host_network))
                for name, strategy, host_network in db.execute(sql)
            }
        )

    async def registries(self) -> dict[str, Registry]:
        """Read all registries by name."""
        return await self._store.run(
            lambda db: {row[0]: registry_of(row) for row in db.execute(ALL_REGISTRIES)}
        )

    async def registry(self, name: str) -> Registry | None:
        """Read one registry."""
        return await self._registry(f"{ALL_REGISTRIES} WHERE name = ?", name)

    async def registry_at(self, address: str) -> Registry | None:
        """Read the registry that has this address; names of hosts do not differ by case."""
        return await self._registry(f"{ALL_REGISTRIES} WHERE address = ? COLLATE NOCASE", address)

    async def _registry(self, sql: str, value: str) -> Registry | None:
        def transaction(db: Database) -> Registry | None:
            row = db.execute(sql, (value,)).fetchone()
            return registry_of(row) if row else None

        return await self._store.run(transaction)


def registry_of(row: tuple[Any, ...]) -> Registry:
    """Read a row of `REGISTRY_COLUMNS`."""
    name, address, aliases, username, sealed, auth_hosts, private, ca = row
    return Registry(
        name,
        address,
        tuple(json.loads(aliases)),
        username,
        sealed or b"",
        tuple(json.loads(auth_hosts)),
        bool(private),
        ca,
    )


def write_registry(db: Database, registry: Registry) -> None:
    """Make or replace a registry, within a transaction."""
    db.execute(
        "INSERT INTO registry(name, address, aliases, username, sealed_password, auth_hosts,"
        " private, ca) VALUES (:name, :address, :aliases, :username, :sealed, :auth_hosts,"
        " :private, :ca) ON CONFLICT(name) DO UPDATE SET"
        " address=excluded.address, aliases=excluded.aliases, username=excluded.username,"
        " sealed_password=excluded.sealed_password, auth_hosts=excluded.auth_hosts,"
        " private=excluded.private, ca=excluded.ca",
        {
            "name": registry.name,
            "address": registry.address,
            "aliases": json.dumps(registry.aliases),
            "username": registry.username,
            "sealed": registry.sealed or None,
            "auth_hosts": json.dumps(registry.auth_hosts),
            "private": registry.private,
            "ca": registry.ca,
        },
    )


def find_claim(wanted: Registry, others: Iterable[Registry]) -> Claimed | None:
    """Find what another registry claims of what one wants.

    Names of hosts do not differ by case.
    """
    taken = {prefix.lower(): other.name for other in others for prefix in other.prefixes}
    for prefix in wanted.prefixes:
        if prefix.lower() in taken:
            return Claimed(prefix, taken[prefix.lower()])
    return None


def _declared(entry: RegistryConfig, sealed: Mapping[str, bytes]) -> Registry:
    return Registry(
        entry.name,
        entry.address,
        entry.aliases,
        entry.username,
        sealed.get(entry.name, b""),
        entry.auth_hosts,
        entry.private,
        entry.ca,
    )


def _declare(db: Database, config: Config, registries: Collection[Registry]) -> None:
    for region in config.regions:
        db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (region,))
    for pool in config.node_pools:
        db.execute("INSERT OR IGNORE INTO node_pool(name) VALUES (?)", (pool,))
    for registry in registries:
        write_registry(db, registry)
    _check_claims(db, registries)
    for agent in config.agents:
        db.execute(
            "INSERT INTO agent(name, address, region, node_pool)"
            " VALUES (:name, :address, :region, :node_pool)"
            " ON CONFLICT(name) DO UPDATE SET address=excluded.address,"
            " region=excluded.region, node_pool=excluded.node_pool, removed_ms=NULL, id=NULL,"
            " certificate_serial=NULL, certificate_expire_ms=NULL, revoked_ms=NULL,"
            " authority=NULL, trusts_former=0",
            {
                "name": agent.name,
                "address": agent.address,
                "region": agent.region,
                "node_pool": agent.node_pool,
            },
        )


def _check_claims(db: Database, registries: Collection[Registry]) -> None:
    """Refuse a file that declares what a registry claims which was made by the API.

    Neither wins: an image would be looked for at another place than its tag was enabled at.
    """
    declared = {registry.name for registry in registries}
    rows = db.execute(ALL_REGISTRIES).fetchall()
    made = [registry_of(row) for row in rows if row[0] not in declared]
    for registry in registries:
        claimed = find_claim(registry, made)
        if claimed is not None:
            raise StoreError(
                f"cannot declare registry {registry.name!r}: {claimed.by!r}, which was"
                f" made by the API, claims {claimed.address}: take the one out of the settings"
                " file, or start without it and change or remove the other by the API"
            )
