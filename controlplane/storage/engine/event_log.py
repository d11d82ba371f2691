"""Writes the log of events. Nothing else adds rows to its table, or numbers them.

The number of an event is counted in one row of the database, not by a process. A transaction
changes this row last, and holds it until its COMMIT: once a reader sees a number, no lower one can
become visible.
"""

from collections.abc import Sequence
from typing import Any

from controlplane.domain.events.event import Event
from controlplane.domain.events.positions import Position
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from tiltyard.runtime.clock import to_ms


def event_row(event: Event) -> dict[str, Any]:
    """Convert an event to the values of its row, without its number."""
    return {
        "time": to_ms(event.time),
        "kind": event.kind,
        "version": event.version,
        "account": event.account,
        "actor": event.actor.name,
        "actor_kind": event.actor.kind,
        "address": event.actor.address,
        "object": event.subject,
        "data": event.data_json(),
    }


def write_events(db: Database, rows: Sequence[dict[str, Any]]) -> None:
    """Number and write the events of a transaction, as its last step."""
    [last] = db.execute(
        "UPDATE event_counter SET number = number + :count RETURNING number", {"count": len(rows)}
    ).fetchone()
    for number, row in enumerate(rows, start=last - len(rows) + 1):
        row["sequence"] = number
    db.executemany(
        "INSERT INTO event(sequence, time_ms, kind, version, account, actor, actor_kind, address,"
        " object, data) VALUES (:sequence, :time, :kind, :version, :account, :actor, :actor_kind,"
        " :address, :object, :data)",
        rows,
    )
    db.changed(Topic.EVENT)


def position(db: Database) -> Position:
    """Read the epoch and the number of the newest event, 0 before the first one."""
    return Position(*db.execute("SELECT epoch, number FROM event_counter").fetchone())


def begin_epoch(db: Database, now: float, *, after: int = 0) -> None:
    """Begin an epoch: from now on, events may get numbers that other events had.

    An epoch is at least the wall time in seconds, so that two restores of one backup differ; it
    is greater than `after`.
    """
    db.execute(
        "UPDATE event_counter SET epoch = CASE WHEN epoch < :least THEN :least ELSE epoch + 1 END",
        {"least": max(int(now), after + 1)},
    )
