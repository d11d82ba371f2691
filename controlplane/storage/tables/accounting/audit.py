"""Queries of the audit, which is a filter of the log of events.

A page is read from the index of its object or account, or from the log, in the order of the
numbers. It looks at SCANNED events at most: the other filters have no index, and events of players
are passed over unless `kind` names them.
"""

import json
from typing import Any

from controlplane.domain.access.audit import AuditFilter, AuditLine, AuditPage
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_schema import OF_PLAYERS
from tiltyard.runtime.clock import from_ms

SCANNED = 50_000  # Events that a page looks at, some 50 ms of the thread of long reads


def find(db: Database, wanted: AuditFilter) -> AuditPage:
    """Read a page, newest first."""
    last = _last_scanned(db, wanted)
    rows = db.execute(*page_query(wanted, after=last - 1)).fetchall()
    lines = tuple(_line(*row) for row in rows[: wanted.limit])
    if len(rows) > wanted.limit:
        return AuditPage(lines, lines[-1].sequence)
    return AuditPage(lines, last or None)


def page_query(wanted: AuditFilter, after: int) -> tuple[str, dict[str, Any]]:
    """Build the query of a page and one further line, after a number, and its parameters."""
    kind = wanted.kind or ""
    by_kind = "kind = :kind" if "." in kind else "substr(kind, 1, length(:kind)) = :kind"
    filters = _indexed(wanted) | {
        "account = :account": wanted.account,
        "actor = :actor": wanted.actor,
        by_kind: wanted.kind,
        f"NOT ({OF_PLAYERS})": True if wanted.kind is None else None,
        "sequence > :after": after if after >= 0 else None,
    }
    sql = (
        "SELECT sequence, time_ms, kind, account, actor, address, object, data FROM event"  # noqa: S608
        f"{_where(filters)} ORDER BY sequence DESC LIMIT :limit"
    )
    values = _values(wanted) | {"after": after, "limit": wanted.limit + 1}
    return sql, values | {"kind": kind if "." in kind else f"{kind}."}


def scan_query(wanted: AuditFilter) -> tuple[str, dict[str, Any]]:
    """Build the query of the first number that a page does not look at, and its parameters."""
    sql = (
        f"SELECT sequence FROM event{_where(_indexed(wanted))}"  # noqa: S608
        " ORDER BY sequence DESC LIMIT 1 OFFSET :scanned"
    )
    return sql, _values(wanted) | {"scanned": SCANNED}


def _last_scanned(db: Database, wanted: AuditFilter) -> int:
    """Return the number before which a page goes on that looks no further; 0 for the oldest."""
    row = db.execute(*scan_query(wanted)).fetchone()
    return 0 if row is None else int(row[0]) + 1


def _indexed(wanted: AuditFilter) -> dict[str, Any]:
    """Return the conditions that an index finds, with their values."""
    narrowest = {"account = :account": wanted.account}
    if wanted.object is not None:
        narrowest = {"object = :object": wanted.object}
    return narrowest | {"sequence < :before": wanted.before}


def _where(filters: dict[str, Any]) -> str:
    conditions = [condition for condition, value in filters.items() if value is not None]
    return f" WHERE {' AND '.join(conditions)}" if conditions else ""


def _values(wanted: AuditFilter) -> dict[str, Any]:
    return {
        "account": wanted.account,
        "object": wanted.object,
        "actor": wanted.actor,
        "before": wanted.before,
    }


def _line(sequence: int, time_ms: int, *texts: str) -> AuditLine:
    kind, account, actor, address, object_, data = texts
    time = from_ms(time_ms)
    return AuditLine(sequence, time, kind, account, actor, address, object_, json.loads(data))
