"""Stop orders: the sessions and attempts that must end, until their hosts have confirmed that.

An order is committed together with its cause, and published to the fleet, which sends it if the
host reports. All pending orders of a host are sent again after each of its snapshots. An order is
confirmed by the answer to a stop alone.

A confirmed order is removed if a row has its internal id. Without a row it stays as long as an
ended session does: a session that is reported later is stopped, and a standby never claimed. Of
these the newest are kept, since an account can cause any number by starts that fail midway.
"""

from controlplane.domain.sessions.stop_orders import StopCause
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import remove_some
from tiltyard.runtime.clock import from_ms, to_ms


def order_stop(db: Database, agent: str, internal_id: str, why: StopCause, *, now: float) -> None:
    """Order a stop of what a host has under this internal id. Idempotent: an earlier one stays."""
    ordered = db.execute(
        "INSERT INTO stop_order(internal_id, agent, why, requested_ms)"
        " VALUES (:internal_id, :agent, :why, :now) ON CONFLICT DO NOTHING",
        {"internal_id": internal_id, "agent": agent, "why": why, "now": to_ms(now)},
    )
    # A requested stop is sent by its request, which waits for the answer.
    if ordered.rowcount and why is not StopCause.REQUESTED:
        db.changed(Topic.STOP_ORDER, agent, internal_id)


def pending_stops(db: Database, agent: str) -> list[str]:
    """Read the internal ids of what a host has not confirmed to have stopped."""
    sql = "SELECT internal_id FROM stop_order WHERE agent=:agent AND confirmed_ms IS NULL"
    return [row[0] for row in db.execute(sql, {"agent": agent})]


def all_pending_stops(db: Database) -> list[tuple[str, str]]:
    """Read the agents and internal ids of all orders that are not confirmed."""
    sql = "SELECT agent, internal_id FROM stop_order WHERE confirmed_ms IS NULL"
    return db.execute(sql).fetchall()


def confirm_stop(db: Database, agent: str, internal_id: str, now: float) -> None:
    """Note that a host has confirmed a stop. Idempotent."""
    values = {"internal_id": internal_id, "agent": agent, "now": to_ms(now)}
    removed = db.execute(
        "DELETE FROM stop_order WHERE internal_id=:internal_id AND agent=:agent"
        " AND EXISTS (SELECT 1 FROM session WHERE session.internal_id = stop_order.internal_id)",
        values,
    )
    if not removed.rowcount:
        db.execute(
            "UPDATE stop_order SET confirmed_ms=:now WHERE internal_id=:internal_id"
            " AND agent=:agent AND confirmed_ms IS NULL",
            values,
        )


def end_stop_orders(db: Database, agent: str, now: float) -> None:
    """Confirm all orders of a host that was removed or revoked: nobody can send them."""
    db.execute(
        "UPDATE stop_order SET confirmed_ms=:now WHERE agent=:agent AND confirmed_ms IS NULL",
        {"agent": agent, "now": to_ms(now)},
    )


def surplus_before(db: Database, most: int) -> float | None:
    """Return the time before which confirmed orders are beyond the newest `most`; None if none."""
    row = db.execute(
        "SELECT confirmed_ms FROM stop_order WHERE confirmed_ms IS NOT NULL"
        " ORDER BY confirmed_ms DESC LIMIT 1 OFFSET :most",
        {"most": most - 1},
    ).fetchone()
    return None if row is None else from_ms(row[0])


def remove_confirmed(db: Database, before: float) -> int:
    """Remove a portion of the orders that were confirmed before a time; return how many."""
    condition = "confirmed_ms < :value"
    return len(remove_some(db, "stop_order", "internal_id", condition, value=to_ms(before)))
