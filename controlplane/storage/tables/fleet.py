"""Regions, node pools and agents in the database."""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from controlplane.domain.contract import Drain
from controlplane.domain.errors import NotFoundError
from controlplane.domain.placement import NodePoolRules, Strategy
from controlplane.settings.model import Config
from controlplane.storage.engine.store import Actor, Database, record_event
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


def declare(
    db: Database, config: Config, sealed: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write what the settings file declares; what only the database knows stays.

    `sealed` has the passwords of the declared registries that have one, by name.

    Raises:
        StoreError: Two registries would claim one address; nothing was changed.
    """
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
            agent.model_dump(),
        )


def agents(db: Database) -> list[AgentRow]:
    """Read all agents that were neither removed nor revoked."""
    sql = (
        f"SELECT {AGENT_COLUMNS} FROM agent WHERE removed_ms IS NULL AND revoked_ms IS NULL"  # noqa: S608
        " ORDER BY name"
    )
    return [AgentRow(*row) for row in db.execute(sql)]


def regions(db: Database) -> list[str]:
    """Read the names of all regions in order."""
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


def counted_regions(db: Database) -> list[Region]:
    """Read all regions by name, with what uses them."""
    sql = (
        "SELECT name, (SELECT count(*) FROM agent WHERE agent.region = region.name),"
        " (SELECT count(*) FROM application WHERE EXISTS"
        " (SELECT 1 FROM json_each(application.regions) WHERE value = region.name))"
        " FROM region ORDER BY name"
    )
    return [Region(*row) for row in db.execute(sql)]


def create_region(db: Database, name: str, actor: Actor, now: float) -> None:
    """Make a region unless it is there."""
    if db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (name,)).rowcount:
        record_event(db, now, "region.created", "", actor, name)


def remove_region(db: Database, name: str, actor: Actor, now: float) -> None:
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
    remove_unused(db, "region", name, used, actor, now)


def node_pools(db: Database) -> list[NodePool]:
    """Read all node pools by name, with what uses them."""
    rows = db.execute(
        "SELECT name, strategy, host_network,"
        " (SELECT count(*) FROM agent WHERE agent.node_pool = pool.name),"
        " (SELECT count(*) FROM application WHERE application.node_pool = pool.name)"
        " FROM node_pool AS pool ORDER BY name"
    )
    return [
        NodePool(name, NodePoolRules(Strategy(strategy), bool(host_network)), *counts)
        for name, strategy, host_network, *counts in rows
    ]


def set_node_pool(db: Database, name: str, rules: NodePoolRules, actor: Actor, now: float) -> None:
    """Make a node pool, or change its rules."""
    values = {"strategy": rules.strategy, "hostNetwork": rules.host_network}
    changed = db.execute(
        "INSERT INTO node_pool(name, strategy, host_network)"
        " VALUES (:name, :strategy, :hostNetwork)"
        " ON CONFLICT(name) DO UPDATE SET strategy=excluded.strategy,"
        " host_network=excluded.host_network"
        " WHERE (strategy, host_network) <> (excluded.strategy, excluded.host_network)",
        {"name": name, **values},
    )
    if changed.rowcount:
        record_event(db, now, "node_pool.set", "", actor, name, **values)


def remove_node_pool(db: Database, name: str, actor: Actor, now: float) -> None:
    """Remove a node pool.

    Raises:
        NotFoundError: There is none of that name.
        ConflictError: An agent or an application uses it.
    """
    used = {
        "agents": "SELECT count(*) FROM agent WHERE node_pool = ?",
        "applications": "SELECT count(*) FROM application WHERE node_pool = ?",
    }
    remove_unused(db, "node_pool", name, used, actor, now)


def remove_agent(db: Database, name: str, actor: Actor, now: float) -> None:
    """Remove an agent; its ended sessions stay.

    Raises:
        NotFoundError: There is none of that name.
        ConflictError: It has live sessions, or attempts whose end is unknown.
    """
    known = "SELECT coalesce(revoked_ms, lost_ms) FROM agent WHERE name=? AND removed_ms IS NULL"
    found = db.execute(known, (name,)).fetchone()
    if found is None:
        raise NotFoundError("agent", name)
    if found[0] is not None:  # starts that were under way when it was given up are over by now
        lose_sessions(db, name, now)
    # An attempt is committed before its call: what is counted here cannot come to run later.
    check_unused(db, "agent", name, _USING_AN_AGENT)
    db.execute(
        "UPDATE agent SET removed_ms=:now, region=NULL, node_pool=NULL, id=NULL, revoked_ms=NULL,"
        " certificate_serial=NULL, certificate_expire_ms=NULL, drain_revision=0, draining=0,"
        " drain_deadline_ms=NULL, heard_ms=NULL, silent_ms=0, lost_ms=NULL WHERE name=:name",
        {"name": name, "now": to_ms(now)},
    )
    void_tokens(db, name, now)
    record_event(db, now, "agent.removed", "", actor, name)


def void_tokens(db: Database, agent: str, now: float) -> None:
    """Void the tokens for an agent: neither it nor another of its name enrols by them."""
    db.execute(
        "UPDATE enrolment_token SET expire_ms=:now WHERE agent=:agent AND expire_ms>:now",
        {"agent": agent, "now": to_ms(now)},
    )
