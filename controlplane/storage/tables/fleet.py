"""Regions, node pools, agents, and host state that survives a restart."""

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from types import MappingProxyType
from typing import Any

from controlplane.domain.contract import Drain
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.placement import NodePoolRules, Strategy
from controlplane.settings.model import Config
from controlplane.storage.engine.statements import write_row
from controlplane.storage.engine.store import ITSELF, Actor, Database, record_event
from controlplane.storage.tables import registries
from controlplane.storage.tables.session_rows import give_up_sessions, lose_sessions
from tiltyard.runtime.clock import from_ms, to_ms

_USES = {
    "region": {
        "agents": "SELECT count(*) FROM agent WHERE region = ?",
        "applications": "SELECT count(*) FROM application"
        " WHERE EXISTS (SELECT 1 FROM json_each(regions) WHERE value = ?)",
    },
    "node_pool": {
        "agents": "SELECT count(*) FROM agent WHERE node_pool = ?",
        "applications": "SELECT count(*) FROM application WHERE node_pool = ?",
    },
    "registry": {"applications": "SELECT count(*) FROM application WHERE registry = ?"},
    "agent": {
        "live sessions": "SELECT count(*) FROM session WHERE agent = ? AND ended_ms IS NULL",
        "starts whose end is unknown": "SELECT count(*) FROM unanswered"
        " WHERE agent = ? AND stopped_ms IS NULL",
    },
}
"""Queries that count what uses a row, by its table."""

IN_SERVICE = {"removed_ms": None, "revoked_ms": None, "trusts_former": 0}
_NOT_ENROLLED = dict.fromkeys(
    ("id", "certificate_serial", "certificate_expire_ms", "authority"), None
)


@dataclass(frozen=True, slots=True)
class AgentRow:
    """An agent: its address and place, and the state of its host when this was read.

    The certificate of an enrolled one names `id` and was signed by `authority`, a fingerprint;
    `trusts_former`: the host trusts another authority, too. `last_report` is exact to a
    minute. `downtime`: its seconds since. `lost`: when its sessions were given up.
    """

    name: str
    address: str
    region: str
    node_pool: str
    id: str | None = None
    certificate_expire: float | None = None
    drain_revision: int = 0
    draining: int = 0
    drain_deadline: float | None = None
    last_report: float | None = None
    downtime: float = 0.0
    lost: float | None = None
    authority: str | None = None
    trusts_former: int = 0
    revoked: float | None = None

    @property
    def drain(self) -> Drain:
        """The newest drain order."""
        return Drain(self.drain_revision, bool(self.draining), self.drain_deadline)


@dataclass(frozen=True, slots=True)
class NodePool:
    """A node pool, its rules and its numbers of agents and applications."""

    name: str
    rules: NodePoolRules
    agents: int
    applications: int


_AGENT_COLUMNS = (
    "name, address, region, node_pool, id, certificate_expire_ms, drain_revision, draining,"
    " drain_deadline_ms, last_report_ms, downtime_ms, lost_ms, authority, trusts_former,"
    " revoked_ms"
)


def declare(
    db: Database, config: Config, sealed: Mapping[str, bytes] = MappingProxyType({})
) -> None:
    """Write what the settings file declares; other rows stay.

    `sealed`: sealed passwords of the declared registries, by name.
    """
    for region in config.regions:
        db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (region,))
    for pool in config.node_pools:
        db.execute("INSERT OR IGNORE INTO node_pool(name) VALUES (?)", (pool,))
    registries.declare(db, config.registries, sealed)
    for agent in config.agents:
        write_row(db, "agent", agent.model_dump() | IN_SERVICE | _NOT_ENROLLED, "name")


def agents(db: Database, *, revoked: bool = False) -> list[AgentRow]:
    """Read the agents in service or the revoked ones by name, without removed ones."""
    rows = db.execute(
        f"SELECT {_AGENT_COLUMNS} FROM agent WHERE removed_ms IS NULL"  # noqa: S608
        " AND (revoked_ms IS NOT NULL) = :revoked ORDER BY name",
        {"revoked": revoked},
    )
    return [_agent(row) for row in rows]


def get_agent(db: Database, name: str) -> AgentRow:
    """Read an agent, even a revoked one.

    Raises:
        NotFoundError: There is none of that name, or it was removed.
    """
    sql = f"SELECT {_AGENT_COLUMNS} FROM agent WHERE name=? AND removed_ms IS NULL"  # noqa: S608
    row = db.execute(sql, (name,)).fetchone()
    if row is None:
        raise NotFoundError("agent", name)
    return _agent(row)


def _agent(row: tuple[Any, ...]) -> AgentRow:
    """Convert a row of `_AGENT_COLUMNS`, which are in the order of the fields."""
    values = zip(_AGENT_COLUMNS.split(", "), row, strict=True)
    return AgentRow(*(from_ms(each) if name.endswith("_ms") else each for name, each in values))


def regions(db: Database) -> list[str]:
    """Read the names of all regions in order."""
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


def counted_regions(db: Database) -> dict[str, dict[str, int]]:
    """Read all regions by name, with the counts of what uses them."""
    return {name: _uses(db, "region", name) for name in regions(db)}


def create_region(db: Database, name: str, actor: Actor, now: float) -> None:
    """Create a region if missing."""
    if db.execute("INSERT OR IGNORE INTO region(name) VALUES (?)", (name,)).rowcount:
        record_event(db, "region.created", "", name, actor=actor, now=now)


def node_pools(db: Database) -> list[NodePool]:
    """Read all node pools by name, with what uses them."""
    rows = db.execute("SELECT name, strategy, host_network FROM node_pool ORDER BY name")
    return [
        NodePool(
            name,
            NodePoolRules(Strategy(strategy), bool(host_network)),
            **_uses(db, "node_pool", name),
        )
        for name, strategy, host_network in rows.fetchall()
    ]


def set_node_pool(
    db: Database, name: str, rules: NodePoolRules, *, actor: Actor, now: float
) -> None:
    """Create a node pool or change its rules."""
    if write_row(db, "node_pool", {"name": name, **asdict(rules)}, "name"):
        data = {"strategy": rules.strategy, "hostNetwork": rules.host_network}
        record_event(db, "node_pool.set", "", name, actor=actor, now=now, **data)


def remove(db: Database, table: str, name: str, *, actor: Actor, now: float) -> None:
    """Remove an unused region, node pool or registry.

    Raises:
        NotFoundError: There is none of that name.
        ConflictError: It is in use.
    """
    if not db.execute(f"SELECT 1 FROM {table} WHERE name=?", (name,)).fetchone():  # noqa: S608
        raise NotFoundError(table.replace("_", " "), name)
    _check_unused(db, table, name)
    db.execute(f"DELETE FROM {table} WHERE name=?", (name,))  # noqa: S608
    record_event(db, f"{table}.removed", "", name, actor=actor, now=now)


def _uses(db: Database, table: str, name: str) -> dict[str, int]:
    """Count what uses a row."""
    return {what: db.execute(sql, (name,)).fetchone()[0] for what, sql in _USES[table].items()}


def _check_unused(db: Database, table: str, name: str) -> None:
    by = [f"{what}: {count}" for what, count in _uses(db, table, name).items() if count]
    if by:
        kind = table.replace("_", " ")
        raise ConflictError(f"the {kind} {name!r} is in use by {', '.join(by)}")


def remove_agent(db: Database, name: str, actor: Actor, now: float) -> None:
    """Remove an agent; its ended sessions stay.

    Raises:
        NotFoundError: There is none of that name.
        ConflictError: It has live sessions, or attempts of unknown outcome.
    """
    agent = get_agent(db, name)
    if agent.revoked is not None or agent.lost is not None:
        lose_sessions(db, name, now)  # starts from before it was given up have ended
    # An attempt is committed before its call, so that it is counted, too.
    _check_unused(db, "agent", name)
    db.execute(
        "UPDATE agent SET removed_ms=:now, region=NULL, node_pool=NULL, id=NULL, revoked_ms=NULL,"
        " certificate_serial=NULL, certificate_expire_ms=NULL, drain_revision=0, draining=0,"
        " drain_deadline_ms=NULL, last_report_ms=NULL, downtime_ms=0, lost_ms=NULL"
        " WHERE name=:name",
        {"name": name, "now": to_ms(now)},
    )
    void_tokens(db, name, now)
    record_event(db, "agent.removed", "", name, actor=actor, now=now)


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
    learn_drain(db, agent, drain)
    if order.draining:
        record_event(db, "agent.drained", "", agent, actor=actor, now=now, deadline=deadline_ms)
    else:
        record_event(db, "agent.undrained", "", agent, actor=actor, now=now)
    return drain


def learn_drain(db: Database, agent: str, drain: Drain) -> None:
    """Write the drain that a host reports, unless there is a newer order."""
    db.execute(
        "UPDATE agent SET drain_revision=:revision, draining=:draining,"
        " drain_deadline_ms=:deadline WHERE name=:agent AND drain_revision<=:revision",
        {"agent": agent, **asdict(drain), "deadline": to_ms(drain.deadline)},
    )


def note_report(db: Database, agent: str, now: float) -> None:
    """Write that a host has reported."""
    db.execute(
        "UPDATE agent SET last_report_ms=:now, downtime_ms=0, lost_ms=NULL WHERE name=:agent",
        {"agent": agent, "now": to_ms(now)},
    )


def note_downtime(db: Database, agent: str, seconds: float) -> None:
    """Write a host's downtime."""
    sql = "UPDATE agent SET downtime_ms=:downtime WHERE name=:agent"
    db.execute(sql, {"agent": agent, "downtime": to_ms(seconds)})


def lose(db: Database, agent: str, starting: Collection[str], now: float) -> None:
    """Give up an unresponsive host's sessions; those in `starting` are left to their tasks.

    Those that still run when it is back are stopped.
    """
    lost = db.execute(
        "UPDATE agent SET lost_ms=:now WHERE name=:agent AND lost_ms IS NULL"
        " AND removed_ms IS NULL AND revoked_ms IS NULL",
        {"agent": agent, "now": to_ms(now)},
    )
    if lost.rowcount:
        record_event(db, "agent.lost", "", agent, actor=ITSELF, now=now)
        give_up_sessions(db, agent, starting, now)
