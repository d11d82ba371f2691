"""What is kept of hosts beyond a restart: their drains, and when they last reported."""

from collections.abc import Collection
from dataclasses import asdict, dataclass

from controlplane.domain.contract import Drain
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.storage.engine.store import ITSELF, Actor, Database, record_event
from controlplane.storage.tables.session_rows import give_up_sessions
from tiltyard.runtime.clock import to_ms


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """What an operator wants of a host, and the newest revision that the host is known to have."""

    agent: str
    draining: bool
    deadline_ms: int | None
    known_revision: int


def order_drain(db: Database, order: DrainOrder, actor: Actor, now: float) -> Drain:
    """Write an order under a new revision.

    The revision is the wall time where that is higher than those before: so it is past those
    that a database had which was lost, also of a host that is unreachable now.

    Raises:
        NotFoundError: There is no such agent.
        ConflictError: It was revoked.
    """
    found = db.execute(
        "SELECT drain_revision, revoked_ms FROM agent WHERE name=? AND removed_ms IS NULL",
        (order.agent,),
    ).fetchone()
    if found is None:
        raise NotFoundError("agent", order.agent)
    revision, revoked_ms = found
    if revoked_ms is not None:
        raise ConflictError(f"the agent {order.agent!r} was revoked")
    revision = max(revision + 1, order.known_revision + 1, to_ms(now))
    drain = Drain(revision, order.draining, order.deadline_ms)
    learn_drain(db, order.agent, drain)
    if order.draining:
        data = {"deadline": order.deadline_ms}
        record_event(db, now, "agent.drained", "", actor, order.agent, **data)
    else:
        record_event(db, now, "agent.undrained", "", actor, order.agent)
    return drain


def learn_drain(db: Database, agent: str, drain: Drain) -> None:
    """Write what a host says of its drain, unless there was a newer order."""
    db.execute(
        "UPDATE agent SET drain_revision=:revision, draining=:draining,"
        " drain_deadline_ms=:deadline_ms WHERE name=:agent AND drain_revision<=:revision",
        {"agent": agent, **asdict(drain)},
    )


def note_report(db: Database, agent: str, now: float) -> None:
    """Write that a host has reported."""
    db.execute(
        "UPDATE agent SET heard_ms=:now, silent_ms=0, lost_ms=NULL WHERE name=:agent",
        {"agent": agent, "now": to_ms(now)},
    )


def note_downtime(db: Database, agent: str, seconds: float) -> None:
    """Write for how long a host has been unresponsive."""
    sql = "UPDATE agent SET silent_ms=:downtime WHERE name=:agent"
    db.execute(sql, {"agent": agent, "downtime": to_ms(seconds)})


def lose(db: Database, agent: str, starting: Collection[str], now: float) -> None:
    """Give up an unresponsive host's sessions; those in `starting` are left to their tasks.

    Once it is back, what is left of them is stopped.
    """
    lost = db.execute(
        "UPDATE agent SET lost_ms=:now WHERE name=:agent AND lost_ms IS NULL"
        " AND removed_ms IS NULL AND revoked_ms IS NULL",
        {"agent": agent, "now": to_ms(now)},
    )
    if lost.rowcount:
        record_event(db, now, "agent.lost", "", ITSELF, agent)
        give_up_sessions(db, agent, starting, now)
