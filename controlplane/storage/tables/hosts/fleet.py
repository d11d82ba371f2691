"""Regions, node pools, agents, and host state that survives a restart."""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.applications.privileges import Privileges
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.events.agents import (
    AgentDraining,
    AgentEvent,
    AgentRemoved,
    AgentUndrained,
)
from controlplane.domain.events.fleet import REMOVED, NodePoolSet, RegionCreated
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import Drain
from controlplane.domain.placement.node_pools import NodePool
from controlplane.domain.placement.placement import NodePoolRules, Strategy
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row
from controlplane.storage.tables.applications.registries import declare_registries
from controlplane.storage.tables.sessions.session_ends import lose_sessions
from tiltyard.contract import Capability
from tiltyard.runtime.clock import from_ms, to_ms

_USES = {
    "region": {
        "agents": "SELECT count(*) FROM agent WHERE region = :name",
        "applications": "SELECT count(*) FROM application_region WHERE region = :name",
    },
    "node_pool": {
        "agents": "SELECT count(*) FROM agent WHERE node_pool = :name",
        "applications": "SELECT count(*) FROM application WHERE node_pool = :name",
    },
    "registry": {"applications": "SELECT count(*) FROM application WHERE registry = :name"},
    "agent": {
        "live sessions": "SELECT count(*) FROM session WHERE agent = :name AND ended_ms IS NULL",
        "stops that its host has not confirmed": "SELECT count(*) FROM stop_order"
        " WHERE agent = :name AND confirmed_ms IS NULL",
    },
}
"""Queries that count what uses a row, by its table."""

_TOPICS = {
    "region": Topic.REGION,
    "node_pool": Topic.NODE_POOL,
    "registry": Topic.REGISTRY,
}

IN_SERVICE = {"removed_ms": None, "revoked_ms": None, "trusts_former": False}
_NOT_ENROLLED = dict.fromkeys(
    ("id", "certificate_serial", "certificate_expire_ms", "authority"), None
)


_AGENT_COLUMNS = (
    "name, address, region, node_pool, id, certificate_expire_ms, drain_revision, draining,"
    " drain_deadline_ms, last_report_ms, downtime_ms, lost_ms, authority, trusts_former,"
    " revoked_ms, written_incarnation, written_sequence, disk_full, empty, sessions_draining"
)


def declare(
    db: Database,
    *,
    regions: Iterable[str],
    node_pools: Iterable[str],
    registries: Iterable[Registry],
    agents: Iterable[Agent],
) -> None:
    """Write the declarations of the settings file; other rows stay.

    Raises:
        StoreError: A registry has the address of one that was created through the API.
    """
    for region in regions:
        _insert_name(db, "region", region)
    for pool in node_pools:
        _insert_name(db, "node_pool", pool)
    declare_registries(db, registries)
    for agent in agents:
        place = {"region": agent.region, "node_pool": agent.node_pool}
        row = {"name": agent.name, "address": agent.address, **place}
        if write_row(db, "agent", row | IN_SERVICE | _NOT_ENROLLED, "name"):
            db.changed(Topic.HOST, agent.name)


def agents(
    db: Database, *, revoked: bool = False, names: Collection[str] | None = None
) -> list[Agent]:
    """Read the agents in service or the revoked ones by name, without removed ones.

    Without `names`, all of them.
    """
    values: dict[str, object] = {"revoked": revoked}
    condition = "removed_ms IS NULL AND (revoked_ms IS NOT NULL) = :revoked"
    if names is not None:
        condition += f" AND name {db.dialect.in_list('names')}"
        values["names"] = db.dialect.list_value(sorted(names))
    sql = f"SELECT {_AGENT_COLUMNS} FROM agent WHERE {condition} ORDER BY name"  # noqa: S608
    return [_agent(row) for row in db.execute(sql, values)]


def get_agent(db: Database, name: str) -> Agent:
    """Read an agent, even a revoked one.

    Raises:
        NotFoundError: No agent has this name, or it was removed.
    """
    sql = f"SELECT {_AGENT_COLUMNS} FROM agent WHERE name=:name AND removed_ms IS NULL"  # noqa: S608
    row = db.execute(sql, {"name": name}).fetchone()
    if row is None:
        raise NotFoundError("agent", name)
    return _agent(row)


def _agent(row: tuple[Any, ...]) -> Agent:
    """Convert a row of `_AGENT_COLUMNS`, which are in the order of the fields."""
    values = zip(_AGENT_COLUMNS.split(", "), row, strict=True)
    return Agent(*(from_ms(each) if name.endswith("_ms") else each for name, each in values))


def regions(db: Database) -> list[str]:
    """Read the names of all regions in order."""
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


def counted_regions(db: Database) -> dict[str, dict[str, int]]:
    """Read all regions by name, with the counts of what uses them."""
    return {name: _uses(db, "region", name) for name in regions(db)}


def create_region(db: Database, name: str, actor: Actor, now: float) -> None:
    """Create a region if missing."""
    if _insert_name(db, "region", name):
        db.append(RegionCreated("", name, actor, now))


def node_pools(db: Database) -> list[NodePool]:
    """Read all node pools by name, with what uses them."""
    sql = "SELECT name, strategy, host_network, capabilities FROM node_pool ORDER BY name"
    found = []
    for name, strategy, host_network, names in db.execute(sql).fetchall():
        capabilities = frozenset(map(Capability, json.loads(names)))
        rules = NodePoolRules(Strategy(strategy), Privileges(bool(host_network), capabilities))
        found.append(NodePool(name, rules, **_uses(db, "node_pool", name)))
    return found


def _insert_name(db: Database, table: str, name: str) -> bool:
    """Insert a row with this name if missing; return whether it was."""
    sql = f"INSERT INTO {table}(name) VALUES (:name) ON CONFLICT DO NOTHING"  # noqa: S608
    if not db.execute(sql, {"name": name}).rowcount:
        return False
    db.changed(_TOPICS[table], name)
    return True


def set_node_pool(
    db: Database, name: str, rules: NodePoolRules, *, actor: Actor, now: float
) -> None:
    """Create a node pool or change its rules."""
    privileges = rules.privileges
    capabilities = sorted(privileges.capabilities)
    values: dict[str, Any] = {"strategy": rules.strategy, "host_network": privileges.host_network}
    row = {"name": name, **values, "capabilities": json.dumps(capabilities)}
    if write_row(db, "node_pool", row, "name"):
        db.changed(Topic.NODE_POOL, name)
        db.append(NodePoolSet("", name, actor, now, **values, capabilities=capabilities))


def remove(db: Database, table: str, name: str, *, actor: Actor, now: float) -> None:
    """Remove an unused region, node pool or registry.

    Raises:
        NotFoundError: None has this name.
        ConflictError: It is in use.
    """
    values = {"name": name}
    if not db.execute(f"SELECT 1 FROM {table} WHERE name=:name", values).fetchone():  # noqa: S608
        raise NotFoundError(table.replace("_", " "), name)
    _check_unused(db, table, name)
    db.execute(f"DELETE FROM {table} WHERE name=:name", values)  # noqa: S608
    db.changed(_TOPICS[table], name)
    db.append(REMOVED[table]("", name, actor, now))


def _uses(db: Database, table: str, name: str) -> dict[str, int]:
    """Count what uses a row."""
    values = {"name": name}
    return {what: db.execute(sql, values).fetchone()[0] for what, sql in _USES[table].items()}


def _check_unused(db: Database, table: str, name: str) -> None:
    by = [f"{what}: {count}" for what, count in _uses(db, table, name).items() if count]
    if by:
        kind = table.replace("_", " ")
        raise ConflictError(f"the {kind} {name!r} is in use by {', '.join(by)}")


def remove_agent(db: Database, name: str, actor: Actor, now: float) -> int:
    """Remove an agent; its ended sessions stay.

    Of a revoked or lost one, first end a portion of its sessions. Returns how many: the agent is
    removed once there are none.

    Raises:
        NotFoundError: No agent has this name.
        ConflictError: It has live sessions, or stops that its host has not confirmed.
    """
    agent = get_agent(db, name)
    is_given_up = agent.revoked is not None or agent.lost is not None
    if is_given_up and not _has_starts(db, name):
        # Starts from before the agent was given up have ended, and become sessions.
        ended = lose_sessions(db, name, now)
        if ended:
            return ended
    # An attempt is committed before its call, so that it is counted, too.
    _check_unused(db, "agent", name)
    db.execute(
        "UPDATE agent SET removed_ms=:now, region=NULL, node_pool=NULL, id=NULL, revoked_ms=NULL,"
        " certificate_serial=NULL, certificate_expire_ms=NULL, drain_revision=0, draining=FALSE,"
        " drain_deadline_ms=NULL, last_report_ms=NULL, downtime_ms=0, lost_ms=NULL,"
        " written_incarnation='', written_sequence=0, disk_full=FALSE, empty=FALSE,"
        " avoided_until_ms=NULL, sessions_draining=FALSE WHERE name=:name",
        {"name": name, "now": to_ms(now)},
    )
    db.execute("DELETE FROM tag_on_host WHERE agent=:name", {"name": name})
    void_tokens(db, name, now)
    db.changed(Topic.HOST, name)
    db.append(AgentRemoved("", name, actor, now))
    return 0


def _has_starts(db: Database, agent: str) -> bool:
    sql = "SELECT 1 FROM session WHERE agent=:agent AND ended_ms IS NULL AND NOT confirmed"
    return db.execute(sql, {"agent": agent}).fetchone() is not None


def void_tokens(db: Database, agent: str, now: float) -> None:
    """Expire the enrolment tokens for an agent."""
    db.execute(
        "UPDATE enrolment_token SET expire_ms=:now WHERE agent=:agent AND expire_ms>:now",
        {"agent": agent, "now": to_ms(now)},
    )


def order_drain(db: Database, agent: str, order: Drain, *, actor: Actor, now: float) -> Drain:
    """Write an order under a new revision, after the newest one that the host is known to have.

    The revision is at least the wall time, so that it exceeds those of a lost database.

    Raises:
        NotFoundError: There is no such agent.
        ConflictError: It was revoked.
    """
    row = get_agent(db, agent)
    if row.revoked is not None:
        raise ConflictError(f"the agent {agent!r} was revoked")
    revision = max(row.drain_revision + 1, order.revision + 1, to_ms(now))
    deadline_ms = to_ms(order.deadline)
    drain = Drain(revision, order.draining, from_ms(deadline_ms))
    _write_drain(db, agent, drain)
    db.append(_drain_event(agent, drain, actor, now))
    return drain


def learn_drain(db: Database, agent: str, drain: Drain, now: float) -> None:
    """Write the drain that a host reports, unless there is a newer order."""
    row = db.execute(
        "SELECT draining FROM agent WHERE name=:agent AND drain_revision<=:revision",
        {"agent": agent, "revision": drain.revision},
    ).fetchone()
    if row is None:
        return
    _write_drain(db, agent, drain)
    if bool(row[0]) != drain.draining:
        db.append(_drain_event(agent, drain, Actor(agent), now))


def _write_drain(db: Database, agent: str, drain: Drain) -> None:
    db.execute(
        "UPDATE agent SET drain_revision=:revision, draining=:draining,"
        " drain_deadline_ms=:deadline WHERE name=:agent",
        {"agent": agent, **asdict(drain), "deadline": to_ms(drain.deadline)},
    )
    db.changed(Topic.HOST, agent)


def _drain_event(agent: str, drain: Drain, actor: Actor, now: float) -> AgentEvent:
    if drain.draining:
        return AgentDraining("", agent, actor, now, deadline=to_ms(drain.deadline))
    return AgentUndrained("", agent, actor, now)
