"""Reads the log of events forwards, in the order of the numbers.

An event can be read once its transaction has committed, and no lower number appears after that. So
a reader that continues after the last number that it has looked at misses nothing, whichever
process wrote the events.
"""

import json
from collections.abc import Sequence
from typing import Any, NamedTuple

from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.events.stored import EventRow, StoredEvent
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import position
from controlplane.storage.engine.event_schema import OF_PLAYERS
from controlplane.storage.tables.accounting.event_retention import start_of

SCANNED = 20_000  # Rows that one read looks at, some 20 ms of its thread
NEAR = 2000  # Numbers among which a read looks first: most readers get all that is there


class EventBatch(NamedTuple):
    """Events in order, and the position after which to continue.

    `more`: there may be others after it now, since a read looks at a bounded part of the log. Then
    there need not be any event in the batch.
    """

    events: Sequence[StoredEvent]
    after: Position
    more: bool = False


def read_after(db: Database, wanted: EventFilter, after: Position, limit: int) -> EventBatch:
    """Read at most `limit` events after a position.

    Raises:
        EventsGoneError: Events after the position may have been removed, or it is not of this log.
    """
    if not can_read_after(db, wanted, after):
        resume = first_position(db, wanted)
        raise EventsGoneError(after, resume, _oldest(db, wanted, resume))
    return _read(db, wanted, after, limit)


def can_read_after(db: Database, wanted: EventFilter, after: Position) -> bool:
    """Return whether all events after a position are left, and the position is of this log."""
    newest = position(db)
    if after.epoch != newest.epoch:
        return False
    return start_of(db, wanted) <= after.number <= newest.number


def read_newer(db: Database, after: int, limit: int) -> tuple[Position, Sequence[StoredEvent]]:
    """Read the newest position and at most `limit` events of all accounts after a number."""
    newest = position(db)
    values = {"after": after, "limit": limit}
    return newest, _events(db, newest.epoch, "sequence > :after", values)


def event_at(db: Database, at: Position) -> StoredEvent | None:
    """Read the event of a position; None if it was removed, or is not of this log."""
    found = events_numbered(db, at.epoch, [at.number])
    return found[0] if found else None


def events_numbered(db: Database, epoch: int, numbers: Sequence[int]) -> list[StoredEvent]:
    """Read the events of some numbers, but for those that were removed or not of this log."""
    if epoch != position(db).epoch:
        return []
    values = {"numbers": db.dialect.list_value(numbers), "limit": len(numbers)}
    return _events(db, epoch, f"sequence {db.dialect.in_list('numbers')}", values)


def first_position(db: Database, wanted: EventFilter) -> Position:
    """Return the position before the oldest event that a reader can get."""
    return Position(position(db).epoch, start_of(db, wanted))


def _oldest(db: Database, wanted: EventFilter, start: Position) -> Position | None:
    """Find the first event of a filter after a position, looking at a bounded part of the log."""
    found = _read(db, wanted, start, 1)
    return found.events[0].position if found.events else None


def _read(db: Database, wanted: EventFilter, after: Position, limit: int) -> EventBatch:
    newest = position(db)
    upto = min(newest.number, after.number + NEAR)
    events = _chosen(db, wanted, after=after, upto=upto, limit=limit)
    if len(events) < limit and upto < newest.number:
        near = Position(after.epoch, upto)
        upto = _end_of_part(db, wanted, after) or newest.number
        events += _chosen(db, wanted, after=near, upto=upto, limit=limit - len(events))
    matching = list(filter(wanted.matches, events))
    if len(events) == limit:
        return EventBatch(matching, events[-1].position, more=True)
    return EventBatch(matching, Position(newest.epoch, upto), more=upto < newest.number)


def _end_of_part(db: Database, wanted: EventFilter, after: Position) -> int | None:
    """Return the number up to which a read looks; None if that is all of the log."""
    range_, values = _range(db, wanted, after.number)
    found = db.execute(
        f"SELECT sequence FROM event WHERE {range_} ORDER BY sequence LIMIT 1 OFFSET :skipped",  # noqa: S608
        values | {"skipped": SCANNED - 1},
    ).fetchone()
    return None if found is None else int(found[0])


def _chosen(
    db: Database, wanted: EventFilter, *, after: Position, upto: int, limit: int
) -> list[StoredEvent]:
    """Read the first events of a filter after a position and up to a number.

    The texts that the database looks for in the data can also be those of another field.
    """
    condition, values = _range(db, wanted, after.number)
    condition += " AND sequence <= :upto"
    values |= {"upto": upto, "limit": limit}
    if wanted.kind_names is None:
        condition += f" AND NOT ({OF_PLAYERS})"
    else:
        condition += f" AND kind {db.dialect.in_list('kinds')}"
        values["kinds"] = db.dialect.list_value(sorted(wanted.kind_names))
    for number, text in enumerate(wanted.data_texts):
        condition += f" AND {db.dialect.contains('data', f'text{number}')}"
        values[f"text{number}"] = text
    return _events(db, after.epoch, condition, values)


def _range(db: Database, wanted: EventFilter, after: int) -> tuple[str, dict[str, Any]]:
    """Return the condition of the narrowest range of an index, and its parameters."""
    values: dict[str, Any] = {"after": after}
    conditions = ["sequence > :after"]
    if wanted.session is not None:
        conditions.append("object = :object")
        values["object"] = wanted.session
    if wanted.account is not None:
        is_chosen = wanted.session is not None
        column = db.dialect.without_index("account") if is_chosen else "account"
        conditions.append(f"{column} = :account")
        values["account"] = wanted.account
    return " AND ".join(conditions), values


def _events(db: Database, epoch: int, condition: str, values: dict[str, Any]) -> list[StoredEvent]:
    """Read the first `:limit` events that match a condition."""
    columns = ", ".join(_COLUMNS)
    [found] = db.execute(
        f"SELECT {db.dialect.rows_as_json(columns, ())} FROM (SELECT {columns} FROM event"  # noqa: S608
        f" WHERE {condition} ORDER BY sequence LIMIT :limit) AS found",
        values,
    ).fetchone()
    return [StoredEvent(epoch, EventRow(*row)) for row in json.loads(found)]


_COLUMNS = EventRow._fields
