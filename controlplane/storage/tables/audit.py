"""Reading the audit, and forgetting what is old of it. It is written by `store.record_event`.

A kind reads `topic.deed`. Every filter has an index, whose entries of one key are in the order of
the sequence: a page is read from where the last one ended, and no more than it.
"""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.storage.engine.store import Actor, Database, Event, Store
from tiltyard.runtime.clock import to_ms

PORTION = 1000
"""Lines that are forgotten in one transaction: others wait that long at most."""

_TOPIC = "substr(kind, 1, instr(kind || '.', '.') - 1)"


@dataclass(frozen=True, slots=True)
class AuditFilter:
    """What a page holds; None does not filter. `kind` may be a topic, such as `token`."""

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
        """Count the lines that were ever written."""
        sql = "SELECT seq FROM sqlite_sequence WHERE name='event'"
        return sum(await self._store.read(sql, (), lambda row: int(row[0])))

    async def forget(self, before: float) -> None:
        """Remove the lines from before a time, a portion after the other."""
        while await self._store.run(lambda db: _forget(db, to_ms(before))):
            pass


def page_query(wanted: AuditFilter) -> tuple[str, dict[str, int | str | None]]:
    """Build the query of a page, and its parameters."""
    by_kind = "kind" if "." in (wanted.kind or "") else _TOPIC
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


def _forget(db: Database, before_ms: int) -> int:
    """By an index of the times: clocks are set, so that they need not follow the sequence."""
    return db.execute(
        "DELETE FROM event WHERE sequence IN"
        " (SELECT sequence FROM event WHERE time_ms < :before LIMIT :portion)",
        {"before": before_ms, "portion": PORTION},
    ).rowcount


def _line(row: tuple[Any, ...]) -> AuditLine:
    sequence, time_ms, kind, account, actor, address, object_, data = row
    event = Event(time_ms, kind, account, Actor(actor, address), object_)
    return AuditLine(sequence, event, json.loads(data))
