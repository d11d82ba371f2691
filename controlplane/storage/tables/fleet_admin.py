"""Regions, node pools, registries and agents as operators see and change them, in the database."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from controlplane.domain.errors import (
    ConflictError,
    InvalidRequestError,
    NotFoundError,
    Violation,
)
from controlplane.domain.placement import NodePoolRules, Strategy
from controlplane.storage.engine.store import Actor, Database, Event, Store, record_event
from controlplane.storage.tables.enrolment import void_tokens
from controlplane.storage.tables.fleet import (
    ALL_REGISTRIES,
    REGISTRY_COLUMNS,
    Registry,
    find_claim,
    registry_of,
    write_registry,
)
from controlplane.storage.tables.session_rows import lose_sessions

_NOT_KEPT = "must be given: none is kept for this username, address, authHosts, private and ca"

_USING_AN_AGENT = {
    "live sessions": "SELECT count(*) FROM session WHERE agent = ? AND ended_ms IS NULL",
    "starts whose end is unknown": "SELECT count(*) FROM abandoned"
    " WHERE agent = ? AND stopped_ms IS NULL",
}


@dataclass(frozen=True, slots=True)
class Region:
    """A region, and how many agents and applications are in it."""

    name: str
    agents: int
    applications: int


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool, its rules, and how many agents and applications are in it."""

    name: str
    rules: NodePoolRules
    agents: int
    applications: int


@dataclass(frozen=True, slots=True)
class CountedRegistry:
    """A registry, and how many applications have their images there."""

    registry: Registry
    applications: int


class FleetAdminStore:
    """Transactions on what the fleet is made of."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def regions(self) -> list[Region]:
        """Read all regions by name."""
        sql = (
            "SELECT name, (SELECT count(*) FROM agent WHERE agent.region = region.name),"
            " (SELECT count(*) FROM application WHERE EXISTS"
            " (SELECT 1 FROM json_each(application.regions) WHERE value = region.name))"
            " FROM region ORDER BY name"
        )
        return await self._store.read(sql, (), lambda row: Region(*row))

    async def create_region(self, name: str, actor: Actor, now_ms: int) -> None:
        """Make a region unless it is there."""

        def transaction(db: Database) -> None:
            if db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (name,)).rowcount:
                record_event(db, Event(now_ms, "region.created", "", actor, name))

        await self._store.run(transaction)

    async def remove_region(self, name: str, actor: Actor, now_ms: int) -> None:
        """Remove a region.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: An agent or an application uses it.
        """
        used = {
            "agents": "SELECT count(*) FROM agent WHERE region = ?",
            "applications": "SELECT count(*) FROM application"
            " WHERE EXISTS (SELECT 1 FROM json_each(regions) WHERE value = ?)",
        }
        event = Event(now_ms, "region.removed", "", actor, name)
        await self._store.run(lambda db: _remove(db, "region", used, event))

    async def node_pools(self) -> list[NodePool]:
        """Read all node pools by name."""
        sql = (
            "SELECT name, strategy, host_network,"
            " (SELECT count(*) FROM agent WHERE agent.node_pool = pool.name),"
            " (SELECT count(*) FROM application WHERE application.node_pool = pool.name)"
            " FROM node_pool AS pool ORDER BY name"
        )
        return await self._store.read(
            sql,
            (),
            lambda row: NodePool(row[0], NodePoolRules(Strategy(row[1]), bool(row[2])), *row[3:]),
        )

    async def set_node_pool(
        self,
        name: str,
        rules: NodePoolRules,
        actor: Actor,
        now_ms: int,
        then: Callable[[NodePoolRules], None],
    ) -> None:
        """Make a node pool, or change its rules.

        `then` is called with the rules once they are committed, even when the caller is gone.
        """

        def transaction(db: Database) -> NodePoolRules:
            changed = db.execute(
                "INSERT INTO node_pool(name, strategy, host_network)"
                " VALUES (:name, :strategy, :host_network)"
                " ON CONFLICT(name) DO UPDATE SET strategy=excluded.strategy,"
                " host_network=excluded.host_network"
                " WHERE (strategy, host_network) <> (excluded.strategy, excluded.host_network)",
                {"name": name, "strategy": rules.strategy, "host_network": rules.host_network},
            )
            if changed.rowcount:
                event = Event(now_ms, "node_pool.set", "", actor, name)
                data = {"strategy": rules.strategy, "hostNetwork": rules.host_network}
                record_event(db, event, data)
            return rules

        await self._store.run(transaction, then)

    async def remove_node_pool(
        self, name: str, actor: Actor, now_ms: int, then: Callable[[str], None]
    ) -> None:
        """Remove a node pool.

        `then` is called with its name after the commit, even when the caller is gone.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: An agent or an application uses it.
        """
        used = {
            "agents": "SELECT count(*) FROM agent WHERE node_pool = ?",
            "applications": "SELECT count(*) FROM application WHERE node_pool = ?",
        }
        event = Event(now_ms, "node_pool.removed", "", actor, name)
        await self._store.run(lambda db: _remove(db, "node_pool", used, event), then)

    async def registries(self) -> list[CountedRegistry]:
        """Read all registries by name."""
        count = "(SELECT count(*) FROM application WHERE application.registry = registry.name)"
        columns = f"{REGISTRY_COLUMNS}, {count}"
        sql = f"SELECT {columns} FROM registry ORDER BY name"  # noqa: S608  # constants
        return await self._store.read(
            sql, (), lambda row: CountedRegistry(registry_of(row[:-1]), row[-1])
        )

    async def set_registry(self, wanted: Registry, actor: Actor, now_ms: int) -> None:
        """Make or replace a registry.

        With a user name and no password it keeps the one that it has, where that may be. Tags
        that are enabled go on naming the address that they were enabled with.

        Raises:
            ConflictError: Another registry claims its address or one of its aliases.
            InvalidRequestError: There is no password for this user at this address.
        """
        await self._store.run(lambda db: _set_registry(db, wanted, actor, now_ms))

    async def remove_registry(self, name: str, actor: Actor, now_ms: int) -> None:
        """Remove a registry.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: An application uses it.
        """
        used = {"applications": "SELECT count(*) FROM application WHERE registry = ?"}
        event = Event(now_ms, "registry.removed", "", actor, name)
        await self._store.run(lambda db: _remove(db, "registry", used, event))

    async def remove_agent(
        self, name: str, actor: Actor, now_ms: int, then: Callable[[str], None]
    ) -> None:
        """Remove an agent; its ended sessions stay.

        `then` is called with its name after the commit, even when the caller is gone.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: It has live sessions, or attempts whose end is unknown.
        """
        await self._store.run(lambda db: _remove_agent(db, name, actor, now_ms), then)


def _remove(db: Database, table: str, used: Mapping[str, str], event: Event) -> str:
    name, kind = event.object, table.replace("_", " ")
    if not db.execute(f"SELECT 1 FROM {table} WHERE name=?", (name,)).fetchone():  # noqa: S608
        raise NotFoundError(kind, name)
    _check_unused(db, kind, name, used)
    db.execute(f"DELETE FROM {table} WHERE name=?", (name,))  # noqa: S608
    record_event(db, event)
    return name


def _remove_agent(db: Database, name: str, actor: Actor, now_ms: int) -> str:
    known = "SELECT coalesce(revoked_ms, lost_ms) FROM agent WHERE name=? AND removed_ms IS NULL"
    found = db.execute(known, (name,)).fetchone()
    if found is None:
        raise NotFoundError("agent", name)
    if found[0] is not None:  # starts that were under way when it was given up are over by now
        lose_sessions(db, name, now_ms)
    # An attempt is committed before its call: what is counted here cannot come to run later.
    _check_unused(db, "agent", name, _USING_AN_AGENT)
    db.execute(
        "UPDATE agent SET removed_ms=:now, region=NULL, node_pool=NULL, id=NULL, revoked_ms=NULL,"
        " certificate_serial=NULL, certificate_expire_ms=NULL, drain_revision=0, draining=0,"
        " drain_deadline_ms=NULL, heard_ms=NULL, silent_ms=0, lost_ms=NULL WHERE name=:name",
        {"name": name, "now": now_ms},
    )
    void_tokens(db, name, now_ms)
    record_event(db, Event(now_ms, "agent.removed", "", actor, name))
    return name


def _check_unused(db: Database, kind: str, name: str, used: Mapping[str, str]) -> None:
    counts = {what: db.execute(sql, (name,)).fetchone()[0] for what, sql in used.items()}
    by = [f"{what}: {count}" for what, count in counts.items() if count]
    if by:
        raise ConflictError(f"the {kind} {name!r} is in use by {', '.join(by)}")


def _set_registry(db: Database, wanted: Registry, actor: Actor, now_ms: int) -> None:
    rows = db.execute(ALL_REGISTRIES).fetchall()
    found = {row[0]: registry_of(row) for row in rows}
    current = found.pop(wanted.name, None)
    claimed = find_claim(wanted, found.values())
    if claimed is not None:
        raise ConflictError(f"registry {claimed.by!r} claims {claimed.address} already")
    given = bool(wanted.sealed)
    if wanted.username and not given:
        if current is None or not current.may_pass_on_password(wanted):
            raise InvalidRequestError((Violation("password", _NOT_KEPT),))
        wanted = replace(wanted, sealed=current.sealed)
    if wanted == current:
        return
    write_registry(db, wanted)
    event = Event(now_ms, "registry.set", "", actor, wanted.name)
    data = {
        "address": wanted.address,
        "aliases": wanted.aliases,
        "username": wanted.username or None,
        "passwordGiven": given,
        "authHosts": wanted.auth_hosts,
        "private": wanted.private,
        "ca": bool(wanted.ca),
    }
    record_event(db, event, data)
