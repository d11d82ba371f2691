"""The times whose sessions the database may have lost.

A session that a host reports without a row is adopted only if it was ordered in such a time. Any
other had a row: it has ended, and the row was removed. A lost time counts as long as ended
sessions are kept, so that what was adopted in it does not come back either.

A new database has lost everything before it, a restored one everything since the backup. At each
start, everything since the last entry may be lost: the files may be an older copy. The time ends
when the control plane serves and its clock can be trusted.
"""

from controlplane.storage.engine.database import Database
from tiltyard.runtime.clock import to_ms

MARGIN = 300.0  # Seconds by which the clocks of two machines, or a step of one, may differ
JOINED = 600.0  # Seconds between two starts whose lost times become one

_LAST_EVENT = "SELECT time_ms FROM event WHERE sequence = (SELECT max(sequence) FROM event)"


def begin(db: Database) -> None:
    """Begin a lost time at the last entry, before anything else is written; or extend the last.

    Hosts that report are noted every minute, and most changes in the audit.
    """
    db.execute(
        f"UPDATE lost_time SET end_ms=NULL WHERE end_ms >= ({_LAST_EVENT}) - :joined",  # noqa: S608
        {"joined": to_ms(JOINED)},
    )
    db.execute(
        "INSERT INTO lost_time(begin_ms) SELECT coalesce(last_ms, 0) FROM"  # noqa: S608
        f" (SELECT max(at_ms) AS last_ms FROM (SELECT ({_LAST_EVENT}) AS at_ms"
        " UNION SELECT max(last_report_ms) FROM agent) AS entries) AS newest"
        " WHERE NOT EXISTS (SELECT 1 FROM lost_time WHERE end_ms IS NULL)"
    )


def end(db: Database, now: float, kept: float) -> None:
    """End the lost times: from now on every session that is ordered has a row.

    Those from before `kept` seconds are removed.
    """
    db.execute("UPDATE lost_time SET end_ms=:now WHERE end_ms IS NULL", {"now": to_ms(now)})
    db.execute("DELETE FROM lost_time WHERE end_ms < :before", {"before": to_ms(now - kept)})


def cover(db: Database, issued_ms: int, *, now: float, kept: float) -> bool:
    """Return whether a session that was ordered at this time may have been lost.

    `kept`: seconds for which ended sessions are kept.
    """
    row = db.execute(
        "SELECT 1 FROM lost_time WHERE :issued >= begin_ms - :margin AND (end_ms IS NULL"
        " OR (:issued <= end_ms + :margin AND :now <= end_ms + :kept))",
        {
            "issued": issued_ms,
            "margin": to_ms(MARGIN),
            "now": to_ms(now),
            "kept": to_ms(kept),
        },
    ).fetchone()
    return row is not None
