"""What is kept of hosts beyond a restart: their drains, and when they last reported."""

from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass

from controlplane.domain.contract import Drain
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.storage.engine.store import ITSELF, Actor, Database, Event, Store, record_event
from controlplane.storage.tables.session_rows import give_up_sessions


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """What an operator wants of a host, and the newest revision that the host is known to have."""

    agent: str
    draining: bool
    deadline_ms: int | None
    known_revision: int


class HostStore:
    """Transactions on what is known of hosts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def order_drain(
        self, order: DrainOrder, actor: Actor, now_ms: int, then: Callable[[Drain], None]
    ) -> None:
        """Write an order under a new revision; `then` is called with it after the commit.

        The revision is the wall time where that is higher than those before: so it is past those
        that a database had which was lost, also of a host that is unreachable now.

        Raises:
            NotFoundError: There is no such agent.
            ConflictError: It was revoked.
        """
        await self._store.run(lambda db: _order_drain(db, order, actor, now_ms), then)

    async def learn_drain(self, agent: str, drain: Drain) -> None:
        """Write what a host says of its drain, unless there was a newer order."""
        await self._store.run(
            lambda db: db.execute(
                "UPDATE agent SET drain_revision=:revision, draining=:draining,"
                " drain_deadline_ms=:deadline_ms"
                " WHERE name=:agent AND drain_revision<=:revision",
                {"agent": agent, **asdict(drain)},
            )
        )

    async def note_heard(self, agent: str, now_ms: int) -> None:
        """Write that a host has reported."""
        await self._store.run(
            lambda db: db.execute(
                "UPDATE agent SET heard_ms=:now, silent_ms=0, lost_ms=NULL WHERE name=:agent",
                {"agent": agent, "now": now_ms},
            )
        )

    async def count_silence(self, agent: str, silent_ms: int) -> None:
        """Write for how long a host has been unresponsive."""
        sql = "UPDATE agent SET silent_ms=:silent WHERE name=:agent"
        values = {"agent": agent, "silent": silent_ms}
        await self._store.run(lambda db: db.execute(sql, values))

    async def lose(self, agent: str, starting: Collection[str], now_ms: int) -> None:
        """Give up an unresponsive host's sessions; those in `starting` are left to their tasks.

        Once it is back, what is left of them is stopped.
        """

        def transaction(db: Database) -> None:
            lost = db.execute(
                "UPDATE agent SET lost_ms=:now WHERE name=:agent AND lost_ms IS NULL"
                " AND removed_ms IS NULL AND revoked_ms IS NULL",
                {"agent": agent, "now": now_ms},
            )
            if lost.rowcount:
                record_event(db, Event(now_ms, "agent.lost", "", ITSELF, agent))
                give_up_sessions(db, agent, starting, now_ms)

        await self._store.run(transaction)


def _order_drain(db: Database, order: DrainOrder, actor: Actor, now_ms: int) -> Drain:
    found = db.execute(
        "SELECT drain_revision, revoked_ms FROM agent WHERE name=? AND removed_ms IS NULL",
        (order.agent,),
    ).fetchone()
    if found is None:
        raise NotFoundError("agent", order.agent)
    revision, revoked_ms = found
    if revoked_ms is not None:
        raise ConflictError(f"the agent {order.agent!r} was revoked")
    revision = max(revision + 1, order.known_revision + 1, now_ms)
    drain = Drain(revision, order.draining, order.deadline_ms)
    db.execute(
        "UPDATE agent SET drain_revision=:revision, draining=:draining,"
        " drain_deadline_ms=:deadline_ms WHERE name=:agent",
        {"agent": order.agent, **asdict(drain)},
    )
    if order.draining:
        event = Event(now_ms, "agent.drained", "", actor, order.agent)
        record_event(db, event, {"deadline": order.deadline_ms})
    else:
        record_event(db, Event(now_ms, "agent.undrained", "", actor, order.agent))
    return drain
