"""Writes the audit; `audit.py` reads it."""

import json
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.storage.engine.database import Database
from tiltyard.runtime.clock import to_ms


def record_event(
    db: Database,
    kind: str,
    account: str,
    object_: str,
    /,
    *,
    actor: Actor,
    now: float,
    **data: Any,
) -> None:
    """Append an audit line within the transaction that makes the change."""
    db.execute(
        "INSERT INTO event(time_ms, topic, kind, account, actor, address, object, data)"
        " VALUES (:time, :topic, :kind, :account, :actor, :address, :object, :data)",
        {
            "time": to_ms(now),
            "topic": kind.partition(".")[0],
            "kind": kind,
            "account": account,
            "actor": actor.name,
            "address": actor.address,
            "object": object_,
            "data": json.dumps(data),
        },
    )
