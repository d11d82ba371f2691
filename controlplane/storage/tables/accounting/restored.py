"""Resets state of a restored database that may be outdated."""

from datetime import datetime

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.fleet import DatabaseRestored
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch
from tiltyard.runtime.clock import to_ms


def mark_restored(db: Database, taken: str, now: float) -> None:
    """Record that the database was restored.

    `taken`: the time of the backup (RFC 3339), after which sessions are lost. Enrolment tokens
    expire, as they may have been used since; downtime of hosts restarts at zero, and all their
    reports are compared with rows again. Numbers of events since the backup are used again, in
    another epoch.
    """
    now_ms = to_ms(now)
    sql = "UPDATE enrolment_token SET expire_ms=:now WHERE expire_ms > :now"
    db.execute(sql, {"now": now_ms})
    db.execute("UPDATE agent SET downtime_ms=0, written_incarnation='', written_sequence=0")
    begin_ms = to_ms(datetime.fromisoformat(taken).timestamp())
    db.execute("INSERT INTO lost_time(begin_ms) VALUES (:begin)", {"begin": begin_ms})
    begin_epoch(db, now)
    db.append(DatabaseRestored("", "", ITSELF, now, of=taken))
