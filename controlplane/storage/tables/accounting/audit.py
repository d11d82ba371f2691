"""Queries and retention of the audit, which is a filter of the log of events.

Kinds are `topic.deed`. Every filter has an index in sequence order: a query reads only its page.
"""

import json
from dataclasses import asdict

from controlplane.domain.access.audit import AuditFilter, AuditLine
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION, remove_some
from tiltyard.runtime.clock import from_ms, to_ms


def find(db: Database, wanted: AuditFilter) -> list[AuditLine]:
    """Read a page, newest first."""
    rows = db.execute(*page_query(wanted))
    return [_line(*row) for row in rows]


def page_query(wanted: AuditFilter) -> tuple[str, dict[str, int | str | None]]:
    """Build the query of a page, and its parameters."""
    by_kind = "kind" if "." in (wanted.kind or "") else "topic"
    filters = {
        "object = :object": wanted.object,
        "actor = :actor": wanted.actor,
        "account = :account": wanted.account,
        f"{by_kind} = :kind": wanted.kind,
        "sequence < :before": wanted.before,
    }
    conditions = [condition for condition, value in filters.items() if value is not None]
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = (
        "SELECT sequence, time_ms, kind, account, actor, address, object, data FROM event"  # noqa: S608
        f"{where} ORDER BY sequence DESC LIMIT :limit"
    )
    return sql, asdict(wanted)


def remove_old(db: Database, before: float) -> int:
    """Remove a portion of the lines from before a time; return how many.

    Found by time, which need not follow the sequence: clocks are set.
    """
    return len(remove_some(db, "event", "sequence", "time_ms < :value", value=to_ms(before)))


def surplus_of(db: Database, account: str, most: int) -> int | None:
    """Find the newest of an account's lines beyond its newest `most`; None if it has no more."""
    row = db.execute(
        "SELECT sequence FROM event WHERE account=:account"
        " ORDER BY sequence DESC LIMIT 1 OFFSET :most",
        {"account": account, "most": most},
    ).fetchone()
    return None if row is None else int(row[0])


def remove_until(db: Database, account: str, last: int) -> int:
    """Remove a portion of an account's lines up to a sequence number; return how many."""
    chosen = (
        "SELECT sequence FROM event WHERE account=:account AND sequence <= :last LIMIT :portion"
    )
    values = {"account": account, "last": last, "portion": PORTION}
    return int(db.execute(f"DELETE FROM event WHERE sequence IN ({chosen})", values).rowcount)  # noqa: S608


def _line(sequence: int, time_ms: int, *texts: str) -> AuditLine:
    kind, account, actor, address, object_, data = texts
    time = from_ms(time_ms)
    return AuditLine(sequence, time, kind, account, actor, address, object_, json.loads(data))
