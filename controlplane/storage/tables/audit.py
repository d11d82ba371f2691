"""Reading the audit, and forgetting what is old of it. It is written by `store.record_event`.

A kind reads `topic.deed`. Every filter has an index, whose entries of one key are in the order of
the sequence: a page is read from where the last one ended, and no more than it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sqlite_utils import Database

from controlplane.storage.engine.store import Actor, Event, Store

PORTION = 1000
"""Lines that are forgotten in one transaction: others wait that long at most."""

_TOPIC = "substr(kind, 1, instr(kind || '.', '.') - 1)"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What a page shall hold; None does not filter. `kind` may be a topic, such as `token`."""

    limit: int
    before: int | None = None
    account: str | None = None
    kind: str | None = None
    object: str | None = None
    actor: str | None = None


@dataclass(frozen=True, slots=True)
class AuditLine:
    """A line of the audit, with its place in it."""

    sequence: int
    event: Event
    data: Mapping[str, Any]


class AuditStore:
    """Transactions on the audit."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def find(self, wanted: AuditFilter) -> list[AuditLine]:
        """Read a page, newest first."""
        sql, values = page_query(wanted)
        return await self._store.read(sql, values, _line)

    async def written(self) -> int:
        """Tell how many lines were ever written."""
        sql = "SELECT seq FROM sqlite_sequence WHERE name='event'"
        return sum(await self._store.read(sql, (), lambda row: int(row[0])))

    async def forget(self, before_ms: int) -> None:
        """Remove the lines from before a time, a portion after the other."""
        while await self._store.run(lambda db: _forget(db, before_ms)):
            pass


def page_query(wanted: AuditFilter) -> tuple[str, list[int | str]]:
    """Build the query of a page, and its values.

    The database knows no numbers of lines, and would take any of the indexes. An object has few
    lines, a kind has many: the first that is given of these names the index, and a plus before
    the others keeps the database from theirs.
    """
    by_kind = "kind" if "." in (wanted.kind or "") else _TOPIC
    filters = {
        "object": wanted.object,
        "actor": wanted.actor,
        "account": wanted.account,
        by_kind: wanted.kind,
    }
    used = {column: value for column, value in filters.items() if value is not None}
    conditions = [f"{'+' if n else ''}{column} = ?" for n, column in enumerate(used)]
    values: list[int | str] = [*used.values()]
    if wanted.before is not None:
        conditions.append("sequence < ?")
        values.append(wanted.before)
    where = f" WHERE {' AND '.join(conditions)}" if conditions else ""
    sql = (
        "SELECT sequence, time_ms, kind, account, actor, address, object, data FROM event"  # noqa: S608
        f"{where} ORDER BY sequence DESC LIMIT ?"
    )
    return sql, [*values, wanted.limit]


def _forget(db: Database, before_ms: int) -> int:
    """By an index of the times: clocks are set, so that they need not follow the sequence."""
    return db.execute(
        "DELETE FROM event WHERE sequence IN"
        " (SELECT sequence FROM event WHERE time_ms < ? LIMIT ?)",
        (before_ms, PORTION),
    ).rowcount


def _line(row: tuple[Any, ...]) -> AuditLine:
    sequence, time_ms, kind, account, actor, address, object_, data = row
    event = Event(time_ms, kind, account, Actor(actor, address), object_)
    return AuditLine(sequence, event, json.loads(data))
