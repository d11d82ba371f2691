"""Removal of old events, in portions.

Events are removed by age, and those that an account can cause at will also by number. No index
has their times or kinds: each portion looks at the next PORTION events after a number. Each
removal notes how far it has come, so that a reader that is behind it learns of that.
"""

from controlplane.domain.events.event import Retention
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.kinds import kinds_kept
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import position
from controlplane.storage.engine.event_schema import OF_PLAYERS
from controlplane.storage.engine.statements import PORTION
from tiltyard.runtime.clock import to_ms

EVENTS_REMOVED = "removed"
"""Key of a change: events that may be in memory were removed."""

_BY_AGE = ""  # In place of a class of retention: events of all classes
_NAME = "NAME"  # In place of a class: a former account of this name had those up to the number


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
    removed = max((number for number, time_ms in rows if time_ms < before_ms), default=0)
    if removed:
        _begin_after(db, "", _BY_AGE, removed)
    return last


def remove_of_players(db: Database, before: float) -> int:
    """Remove at most PORTION of the events of players from before a time; return how many."""
    rows = db.execute(
        f"SELECT sequence, account FROM event WHERE {OF_PLAYERS} AND time_ms < :before"  # noqa: S608
        " ORDER BY time_ms LIMIT :portion",
        {"before": to_ms(before), "portion": PORTION},
    ).fetchall()
    if rows:
        numbers = [number for number, _ in rows]
        sql = f"DELETE FROM event WHERE sequence {db.dialect.in_list('numbers')}"  # noqa: S608
        db.execute(sql, {"numbers": db.dialect.list_value(numbers)})
        db.changed(Topic.EVENT, EVENTS_REMOVED)
    newest: dict[str, int] = {}
    for number, account in rows:
        newest[account] = max(number, newest.get(account, 0))
    for account, number in newest.items():
        _begin_after(db, account, Retention.PLAYERS.name, number)
    return len(rows)


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
    _begin_after(db, account, retention.name, end)
    return removed.rowcount, int(end)


def hide_all(db: Database, account: str) -> None:
    """Let a later account of this name begin after the events of the one that is removed.

    Operators still read them: none is removed.
    """
    _begin_after(db, account, _NAME, position(db).number)


def start_of(db: Database, wanted: EventFilter) -> int:
    """Return the number after which nothing that a reader wants was removed, or is hidden."""
    classes = {_BY_AGE, *(retention.name for retention in wanted.retentions)}
    if not wanted.is_operator:
        classes.add(_NAME)
    of_account = "" if wanted.account is None else " AND account IN ('', :account)"
    [number] = db.execute(
        "SELECT coalesce(max(number), 0) FROM event_start"  # noqa: S608
        f" WHERE retention {db.dialect.in_list('retentions')}{of_account}",
        {
            "retentions": db.dialect.list_value(sorted(classes)),
            "account": wanted.account,
        },
    ).fetchone()
    return int(number)


def _begin_after(db: Database, account: str, retention: str, number: int) -> None:
    db.execute(
        "INSERT INTO event_start(account, retention, number)"
        " VALUES (:account, :retention, :number)"
        " ON CONFLICT(account, retention) DO UPDATE SET number=excluded.number"
        " WHERE excluded.number > event_start.number",
        {"account": account, "retention": retention, "number": number},
    )
