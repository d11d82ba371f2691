"""Regions, node pools and agents in the database."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from controlplane.domain.contract import Drain
from controlplane.domain.errors import NotFoundError
from controlplane.domain.placement import NodePoolRules, Strategy
from controlplane.settings.model import Config
from controlplane.storage.engine.store import Actor, Database, Event, Store, record_event
from controlplane.storage.tables import registries
from controlplane.storage.tables.registries import check_unused, remove_unused
from controlplane.storage.tables.session_rows import lose_sessions
from tiltyard.runtime.clock import to_ms

_USING_AN_AGENT = {
    "live sessions": "SELECT count(*) FROM session WHERE agent = ? AND ended_ms IS NULL",
    "starts whose end is unknown": "SELECT count(*) FROM unanswered"
    " WHERE agent = ? AND stopped_ms IS NULL",
}


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


AGENT_COLUMNS = (
    "name, address, region, node_pool, id, certificate_expire_ms, drain_revision, draining,"
    " drain_deadline_ms, heard_ms, silent_ms, lost_ms, authority, trusts_former"
)


class FleetStore:
    """Transactions on regions, node pools and agents."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def declare(self, config: Config, sealed: Mapping[str, bytes] | None = None) -> None:
        """Write what the settings file declares; what only the database knows stays.

        `sealed` has the passwords of the declared registries that have one, by name.

        Raises:
            StoreError: Two registries would claim one address; nothing was changed.
        """
        await self._store.run(lambda db: _declare(db, config, sealed or {}))

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

    async def counted_regions(self) -> list[Region]:
        """Read all regions by name, with what uses them."""
        sql = (
            "SELECT name, (SELECT count(*) FROM agent WHERE agent.region = region.name),"
            " (SELECT count(*) FROM application WHERE EXISTS"
            " (SELECT 1 FROM json_each(application.regions) WHERE value = region.name))"
            " FROM region ORDER BY name"
        )
        return await self._store.read(sql, (), lambda row: Region(*row))

    async def create_region(self, name: str, actor: Actor, now: float) -> None:
        """Make a region unless it is there."""

        def transaction(db: Database) -> None:
            if db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (name,)).rowcount:
                record_event(db, Event(to_ms(now), "region.created", "", actor, name))

        await self._store.run(transaction)

    async def remove_region(self, name: str, actor: Actor, now: float) -> None:
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
        event = Event(to_ms(now), "region.removed", "", actor, name)
        await self._store.run(lambda db: remove_unused(db, "region", used, event))

    async def node_pools(self) -> list[NodePool]:
        """Read all node pools by name, with what uses them."""
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
        now: float,
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
                event = Event(to_ms(now), "node_pool.set", "", actor, name)
                data = {"strategy": rules.strategy, "hostNetwork": rules.host_network}
                record_event(db, event, data)
            return rules

        await self._store.run(transaction, then)

    async def remove_node_pool(
        self, name: str, actor: Actor, now: float, then: Callable[[str], None]
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
        event = Event(to_ms(now), "node_pool.removed", "", actor, name)
        await self._store.run(lambda db: remove_unused(db, "node_pool", used, event), then)

    async def remove_agent(
        self, name: str, actor: Actor, now: float, then: Callable[[str], None]
    ) -> None:
        """Remove an agent; its ended sessions stay.

        `then` is called with its name after the commit, even when the caller is gone.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: It has live sessions, or attempts whose end is unknown.
        """
        await self._store.run(lambda db: _remove_agent(db, name, actor, to_ms(now)), then)


def _declare(db: Database, config: Config, sealed: Mapping[str, bytes]) -> None:
    for region in config.regions:
        db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (region,))
    for pool in config.node_pools:
        db.execute("INSERT OR IGNORE INTO node_pool(name) VALUES (?)", (pool,))
    registries.declare(db, config.registries, sealed)
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


def _remove_agent(db: Database, name: str, actor: Actor, now_ms: int) -> str:
    known = "SELECT coalesce(revoked_ms, lost_ms) FROM agent WHERE name=? AND removed_ms IS NULL"
    found = db.execute(known, (name,)).fetchone()
    if found is None:
        raise NotFoundError("agent", name)
    if found[0] is not None:  # starts that were under way when it was given up are over by now
        lose_sessions(db, name, now_ms)
    # An attempt is committed before its call: what is counted here cannot come to run later.
    check_unused(db, "agent", name, _USING_AN_AGENT)
    db.execute(
        "UPDATE agent SET removed_ms=:now, region=NULL, node_pool=NULL, id=NULL, revoked_ms=NULL,"
        " certificate_serial=NULL, certificate_expire_ms=NULL, drain_revision=0, draining=0,"
        " drain_deadline_ms=NULL, heard_ms=NULL, silent_ms=0, lost_ms=NULL WHERE name=:name",
        {"name": name, "now": now_ms},
    )
    void_tokens(db, name, now_ms)
    record_event(db, Event(now_ms, "agent.removed", "", actor, name))
    return name


def void_tokens(db: Database, agent: str, now_ms: int) -> None:
    """Void the tokens for an agent: neither it nor another of its name enrols by them."""
    db.execute(
        "UPDATE enrolment_token SET expire_ms=:now WHERE agent=:agent AND expire_ms>:now",
        {"agent": agent, "now": now_ms},
    )
