"""Removing sessions from the database a portion at a time, so that others have their turn."""

import json

from sqlite_utils import Database

PORTION = 1000
"""Rows that are forgotten in one transaction, but for one session with more players than that."""


def remove_sessions(db: Database, condition: str, value: int | str) -> int:
    """Remove a portion of the sessions of a condition on `:value` with their players.

    Returns how many.
    """
    sql = f"SELECT rowid, 1 + player_count FROM session WHERE {condition} LIMIT :portion"  # noqa: S608
    chosen: list[int] = []
    rows = 0
    for row_id, its_rows in db.execute(sql, {"value": value, "portion": PORTION}).fetchall():
        rows += its_rows
        if chosen and rows > PORTION:
            break
        chosen.append(row_id)
    db.execute(
        "DELETE FROM session WHERE rowid IN (SELECT value FROM json_each(?))",
        (json.dumps(chosen),),
    )
    return len(chosen)


def remove_ended(db: Database, before_ms: int) -> int:
    """Remove a portion of the sessions that ended before a time; return how many."""
    return remove_sessions(db, "ended_ms < :value ORDER BY ended_ms", before_ms)


def remove_abandoned(db: Database, before_ms: int) -> int:
    """Remove a portion of the ledger entries that were settled before a time."""
    return db.execute(
        "DELETE FROM abandoned WHERE internal_id IN"
        " (SELECT internal_id FROM abandoned WHERE stopped_ms < :before LIMIT :portion)",
        {"before": before_ms, "portion": PORTION},
    ).rowcount
