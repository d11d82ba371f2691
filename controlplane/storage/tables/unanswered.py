"""Attempts and claims that a host did not answer: noted as they leave their row, until stopped.

Something may come of one. Whatever its host reports of it is stopped, nothing of it is kept, and
no standby among them is claimed again.
"""

from controlplane.storage.engine.store import Database
from tiltyard.runtime.clock import to_ms

PORTION = 1000
"""Rows that are forgotten in one transaction."""

TO_STOP = "SELECT internal_id FROM unanswered WHERE agent=:agent AND stopped_ms IS NULL"
"""Finds what is still to be stopped on the host of an agent."""


def note_unanswered(db: Database, agent: str, internal_id: str, now: float) -> None:
    """Note that whatever comes of an attempt is to be stopped. Idempotent."""
    db.execute(
        "INSERT OR IGNORE INTO unanswered(internal_id, agent, created_ms)"
        " VALUES (:internal_id, :agent, :now)",
        {"internal_id": internal_id, "agent": agent, "now": to_ms(now)},
    )


def is_unanswered(db: Database, agent: str, internal_id: str) -> bool:
    """Return whether an attempt on the host of an agent was noted."""
    sql = "SELECT 1 FROM unanswered WHERE internal_id=:internal_id AND agent=:agent"
    return db.execute(sql, {"internal_id": internal_id, "agent": agent}).fetchone() is not None


def note_stopped(db: Database, agent: str, now: float, internal_id: str | None = None) -> None:
    """Note that nothing can come of an attempt any more; without one, of any on the host."""
    db.execute(
        "UPDATE unanswered SET stopped_ms=:now WHERE agent=:agent AND stopped_ms IS NULL"
        " AND internal_id=coalesce(:internal_id, internal_id)",
        {"internal_id": internal_id, "agent": agent, "now": to_ms(now)},
    )


def remove_stopped(db: Database, before: float) -> int:
    """Remove a portion of what was stopped before a time; return how many."""
    return db.execute(
        "DELETE FROM unanswered WHERE internal_id IN"
        " (SELECT internal_id FROM unanswered WHERE stopped_ms < :before LIMIT :portion)",
        {"before": to_ms(before), "portion": PORTION},
    ).rowcount
