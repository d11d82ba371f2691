"""Removal of old events, in portions.

Events are removed by age, and those that an account can cause at will also by number. No index
has their times or kinds: each portion looks at the next PORTION events after a number.
"""

from controlplane.domain.events.event import Retention
from controlplane.domain.events.kinds import kinds_kept
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION
from tiltyard.runtime.clock import to_ms


def remove_old(db: Database, after: int, *, before: float, now: float) -> int | None:
    """Remove the events from before a time from the next PORTION after a number.

    Returns the number to continue after, None when done. Numbers need not be in the order of
    times, since clocks are set: events dated ahead of `now` do not end the removal.
    """
    rows = db.execute(
        "SELECT sequence, time_ms FROM event WHERE sequence > :after"
        " ORDER BY sequence LIMIT :portion",
        {"after": after, "portion": PORTION},
    ).fetchall()
    before_ms = to_ms(before)
    is_done = all(before_ms <= time_ms <= to_ms(now) for _, time_ms in rows)
    if is_done:  # also without any row
        return None
    last = int(rows[-1][0])
    db.execute(
        "DELETE FROM event WHERE sequence > :after AND sequence <= :last AND time_ms < :before",
        {"after": after, "last": last, "before": before_ms},
    )
    return last


def has_surplus(db: Database, account: str, most: int) -> bool:
    """Return whether an account has more than `most` events of all classes together."""
    row = db.execute(
        "SELECT 1 FROM event WHERE account=:account ORDER BY sequence DESC LIMIT 1 OFFSET :most",
        {"account": account, "most": most},
    ).fetchone()
    return row is not None


def surplus_of(db: Database, account: str, retention: Retention, most: int) -> int | None:
    """Find the newest event beyond the newest `most` of an account and class; None if none is."""
    row = db.execute(
        f"SELECT sequence FROM event WHERE account=:account AND kind {db.dialect.in_list('kinds')}"  # noqa: S608
        " ORDER BY sequence DESC LIMIT 1 OFFSET :most",
        {
            "account": account,
            "kinds": db.dialect.list_value(kinds_kept(retention)),
            "most": most,
        },
    ).fetchone()
    return None if row is None else int(row[0])


def remove_until(
    db: Database, account: str, retention: Retention, *, after: int, last: int
) -> tuple[int, int | None]:
    """Remove a class from the next PORTION of an account's events, up to a number.

    Returns how many were removed, and the number to continue after, None when done.
    """
    end = db.execute(
        "SELECT max(sequence) FROM (SELECT sequence FROM event WHERE account=:account"
        " AND sequence > :after AND sequence <= :last ORDER BY sequence LIMIT :portion) AS next",
        {"account": account, "after": after, "last": last, "portion": PORTION},
    ).fetchone()[0]
    if end is None:
        return 0, None
    removed = db.execute(
        "DELETE FROM event WHERE account=:account AND sequence > :after AND sequence <= :end"  # noqa: S608
        f" AND kind {db.dialect.in_list('kinds')}",
        {
            "account": account,
            "after": after,
            "end": end,
            "kinds": db.dialect.list_value(kinds_kept(retention)),
        },
    )
    return removed.rowcount, int(end)
