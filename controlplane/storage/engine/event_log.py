"""Writes the log of events. Nothing else adds rows to its table."""

import json
from collections.abc import Sequence
from typing import Any

from controlplane.domain.events.event import Event
from controlplane.storage.engine.database import Database
from tiltyard.runtime.clock import to_ms


def event_row(event: Event) -> dict[str, Any]:
    """Convert an event to the values of its row."""
    kind = event.kind
    return {
        "time": to_ms(event.time),
        "topic": kind.partition(".")[0],
        "kind": kind,
        "account": event.account,
        "actor": event.actor.name,
        "address": event.actor.address,
        "object": event.subject,
        "data": json.dumps(event.data()),
    }


def write_events(db: Database, rows: Sequence[dict[str, Any]]) -> None:
    """Write the events of a transaction."""
    db.executemany(
        "INSERT INTO event(time_ms, topic, kind, account, actor, address, object, data)"
        " VALUES (:time, :topic, :kind, :account, :actor, :address, :object, :data)",
        rows,
    )
