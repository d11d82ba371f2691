"""Queries of sessions that several transactions need."""

from typing import Any

from controlplane.storage.engine.database import Database


def find_session(db: Database, columns: str, account: str, name: str) -> tuple[Any, ...] | None:
    """Read columns of an account's session by its id, or else its internal id.

    In two queries: one with an OR would scan all sessions of the account.
    """
    values = {"account": account, "name": name}
    for key in ("id", "internal_id"):
        sql = f"SELECT {columns} FROM session WHERE {key}=:name AND account=:account"  # noqa: S608
        row: tuple[Any, ...] | None = db.execute(sql, values).fetchone()
        if row is not None:
            return row
    return None


def id_of(db: Database, account: str, name: str) -> str | None:
    """Return the id of an account's session by its id or internal id."""
    row = find_session(db, "id", account, name)
    return None if row is None else str(row[0])


def live_on(db: Database, agent: str) -> list[str]:
    """Read the internal ids of a host's live sessions."""
    sql = "SELECT internal_id FROM session WHERE agent=:agent AND ended_ms IS NULL"
    return [row[0] for row in db.execute(sql, {"agent": agent})]


def has_row(db: Database, internal_id: str) -> bool:
    """Return whether a session's row has this internal id."""
    sql = "SELECT 1 FROM session WHERE internal_id=:id"
    return db.execute(sql, {"id": internal_id}).fetchone() is not None


def surplus_of(db: Database, account: str, most: int, most_bytes: int) -> list[int]:
    """Find the ended sessions of an account beyond its newest ones; return their numbers."""
    rows = db.execute(
        "SELECT number, length(labels) + length(injected_env) + length(ports) + length(detail)"
        " FROM session WHERE account=:account AND ended_ms IS NOT NULL"
        " ORDER BY ended_ms DESC, number DESC",
        {"account": account},
    )
    surplus = []
    kept_bytes = 0
    for kept, (number, size) in enumerate(rows, start=1):
        kept_bytes += size
        if kept > most or kept_bytes > most_bytes:
            surplus.append(number)
    return surplus
