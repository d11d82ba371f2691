"""All writes of the table `session`, and of the index of its labels.

The transactions of starts, ends, reports and players call these functions, which note the change
of the session, and write the audit.
"""

import functools
import json
from collections.abc import Collection, Mapping
from typing import Any

from controlplane.domain.events.sessions import SessionSubject
from controlplane.domain.sessions.attempts import Attempt
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION, write_row
from controlplane.storage.tables.sessions.session_columns import SUBJECT, env_json
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import to_ms

_END = (
    "ended_ms=CASE WHEN :end < created_ms THEN created_ms ELSE :end END",
    "claim=NULL",
    "player_count=0",
)


# ---- starts


def put_row(db: Database, row: dict[str, Any], labels: Mapping[str, str]) -> None:
    """Insert a row, or change the one that has its account and id.

    `labels` are added to the index, which has none of the session yet.
    """
    account = row["account"]
    session_id = row["id"]
    write_row(db, "session", row | {"labels": json.dumps(dict(labels))}, "account, id")
    db.changed(Topic.SESSION, account, session_id)
    if not labels:
        return
    # SQLite compares text only up to a NUL; of names that are then equal, one is kept.
    db.executemany(
        "INSERT INTO live_label(account, name, value, number)"
        " SELECT :account, :name, :value, number FROM session"
        " WHERE account = :account AND session.id = :id ON CONFLICT DO NOTHING",
        [
            {"account": account, "id": session_id, "name": name, "value": value}
            for name, value in labels.items()
        ],
    )


def remove_labels(db: Database, account: str, session_id: str) -> None:
    """Remove the labels of a session that has ended or gets others from the index."""
    db.execute(
        "DELETE FROM live_label WHERE number ="
        " (SELECT number FROM session WHERE account = :account AND id = :id)",
        {"account": account, "id": session_id},
    )


def name_attempt(
    db: Database, account: str, session_id: str, attempt: Attempt
) -> SessionSubject | None:
    """Write an attempt to a row; return its session.

    None if the row has the stop mark, or the agent was removed or revoked.
    """
    row = db.execute(
        "UPDATE session SET internal_id=:internal_id, agent=:agent, host=:host"  # noqa: S608
        " WHERE account=:account AND id=:id AND stop_requested_ms IS NULL"
        " AND EXISTS (SELECT 1 FROM agent WHERE name=:agent AND removed_ms IS NULL"
        f" AND revoked_ms IS NULL) RETURNING {SUBJECT}",
        {"account": account, "id": session_id, **attempt._asdict()},
    ).fetchone()
    if row is None:
        return None
    db.changed(Topic.SESSION, account, session_id)
    return SessionSubject(*row)


def clear_attempt(db: Database, account: str, session_id: str, internal_id: str) -> None:
    """Remove an attempt from its row, unless its host has reported it."""
    db.execute(
        "UPDATE session SET internal_id=NULL, agent=NULL, host=''"
        " WHERE account=:account AND id=:id AND internal_id=:attempt AND NOT confirmed",
        {"account": account, "id": session_id, "attempt": internal_id},
    )
    db.changed(Topic.SESSION, account, session_id)


def delete_start(
    db: Database, account: str, session_id: str, internal_id: str | None
) -> SessionSubject | None:
    """Delete the row of a start unless it names another attempt, or its host has reported it.

    Returns the session, None if it was not deleted.
    """
    row = db.execute(
        "DELETE FROM session WHERE account=:account AND id=:id AND NOT confirmed"  # noqa: S608
        f" AND (internal_id IS NULL OR internal_id=:attempt) RETURNING {SUBJECT}",
        {"account": account, "id": session_id, "attempt": internal_id},
    ).fetchone()
    if row is None:
        return None
    db.changed(Topic.SESSION, account, session_id)
    return SessionSubject(*row)


def delete_unattempted(db: Database) -> list[SessionSubject]:
    """Delete the rows of starts that name no attempt; return their sessions."""
    rows = db.execute(
        "DELETE FROM session WHERE agent IS NULL AND ended_ms IS NULL"  # noqa: S608
        f" RETURNING {SUBJECT}"
    ).fetchall()
    dropped = [SessionSubject(*row) for row in rows]
    for subject in dropped:
        db.changed(Topic.SESSION, subject.account, subject.session_id)
    return dropped


# ---- reports and ends


def write_report(
    db: Database, subject: SessionSubject, changes: Mapping[str, Any], end_time: float | None
) -> None:
    """Write the columns of a row that a report changes.

    `end_time`: None while the session lives.
    """
    account = subject.account
    session_id = subject.session_id
    values = dict(changes)
    if "ports" in values:
        values["ports"] = json.dumps(values["ports"])
    if "injected_env" in values:
        values["injected_env"] = env_json(values["injected_env"])
    assignments = _assignments(tuple(values), has_ended=end_time is not None)
    db.execute(
        f"UPDATE session SET {assignments} WHERE account=:account AND id=:id",  # noqa: S608
        values | {"end": to_ms(end_time), "account": account, "id": session_id},
    )
    if end_time is not None:
        _remove_ended_parts(db, account, session_id)
    db.changed(Topic.SESSION, account, session_id)


@functools.cache  # a session changes a few sets of columns in its life
def _assignments(columns: tuple[str, ...], *, has_ended: bool) -> str:
    changes = [f"{column}=:{column}" for column in columns]
    if has_ended:  # a row that lives stays as it is in all indexes
        changes += _END
    return ", ".join(changes)


def end_row(
    db: Database, agent: str, internal_id: str, *, reason: EndReason, now: float
) -> tuple[SessionSubject, str] | None:
    """End a live session of an agent, as exited only if it was stopped.

    Returns the session and its host, None if there is no such session.
    """
    row = db.execute(
        "UPDATE session SET state=:state, ended_ms=:now, end_reason=:reason, claim=NULL,"  # noqa: S608
        " player_count=0 WHERE internal_id=:internal_id AND agent=:agent"
        f" AND ended_ms IS NULL RETURNING {SUBJECT}, host",
        {
            "state": State.EXITED if reason is EndReason.STOPPED else State.DEAD,
            "now": to_ms(now),
            "reason": reason,
            "internal_id": internal_id,
            "agent": agent,
        },
    ).fetchone()
    if row is None:
        return None
    *columns, host = row
    subject = SessionSubject(*columns)
    _remove_ended_parts(db, subject.account, subject.session_id)
    db.changed(Topic.SESSION, subject.account, subject.session_id)
    return subject, host


def _remove_ended_parts(db: Database, account: str, session_id: str) -> None:
    """Remove what only a live session has: its labels for searches, and its players."""
    remove_labels(db, account, session_id)
    values = {"account": account, "id": session_id}
    db.execute("DELETE FROM player WHERE account=:account AND session=:id", values)


def mark_to_stop(
    db: Database, account: str, session_id: str, *, now: float, columns: str
) -> tuple[Any, ...] | None:
    """Set the stop mark of a live session; return these columns, None if no live one has the id.

    An earlier mark stays.
    """
    row: tuple[Any, ...] | None = db.execute(
        "UPDATE session SET stop_requested_ms = coalesce(stop_requested_ms, :now)"  # noqa: S608
        f" WHERE account=:account AND id=:id AND ended_ms IS NULL RETURNING {columns}",
        {"account": account, "id": session_id, "now": to_ms(now)},
    ).fetchone()
    if row is not None:
        db.changed(Topic.SESSION, account, session_id)
    return row


def mark_draining(db: Database, agent: str, mark: int, *, most: int) -> list[tuple[Any, ...]]:
    """Write the mark of its drain to live sessions of an agent that have another one.

    Returns `SUBJECT` and the host of each. Sessions that are being stopped keep their mark.
    """
    rows: list[tuple[Any, ...]] = db.execute(
        "UPDATE session SET draining=:mark WHERE number IN (SELECT number FROM session"  # noqa: S608
        " WHERE agent=:agent AND ended_ms IS NULL AND confirmed AND draining <> :mark"
        f" AND state <> :stopping LIMIT :most) RETURNING {SUBJECT}, host",
        {
            "agent": agent,
            "mark": mark,
            "stopping": State.SHUTTINGDOWN,
            "most": most,
        },
    ).fetchall()
    for account, session_id, *_ in rows:
        db.changed(Topic.SESSION, account, session_id)
    return rows


# ---- players


def count_players(db: Database, account: str, session_id: str, change: int) -> None:
    """Change the number of players, and the highest number of this run."""
    db.execute(
        "UPDATE session SET player_count = player_count + :change,"
        " most_players = CASE WHEN most_players < player_count + :change"
        " THEN player_count + :change ELSE most_players END"
        " WHERE account=:account AND id=:session",
        {"change": change, "account": account, "session": session_id},
    )
    db.changed(Topic.SESSION, account, session_id)


def end_run(db: Database, account: str, session_id: str, *, removed: int, earlier: str) -> None:
    """Begin a run without `removed` players; `earlier` has the numbers of earlier runs as JSON."""
    db.execute(
        "UPDATE session SET player_count = player_count - :removed,"
        " most_players = player_count - :removed, earlier_players = :earlier"
        " WHERE account=:account AND id=:session",
        {"removed": removed, "earlier": earlier, "account": account, "session": session_id},
    )
    db.changed(Topic.SESSION, account, session_id)


# ---- removal after the end


def remove_sessions(db: Database, condition: str, value: int | str) -> int:
    """Remove a portion of sessions by a condition on `:value`; return how many.

    Players count as rows, but a session is removed with all of its own.
    """
    sql = f"SELECT number, 1 + player_count FROM session WHERE {condition} LIMIT :portion"  # noqa: S608
    chosen: list[int] = []
    rows = 0
    for number, its_rows in db.execute(sql, {"value": value, "portion": PORTION}).fetchall():
        rows += its_rows
        if chosen and rows > PORTION:
            break
        chosen.append(number)
    return _remove_numbered(db, chosen, "TRUE")


def remove_numbers(db: Database, numbers: Collection[int]) -> int:
    """Remove ended sessions by their numbers; return how many. They have no players."""
    return _remove_numbered(db, numbers, "ended_ms IS NOT NULL")


def _remove_numbered(db: Database, numbers: Collection[int], condition: str) -> int:
    removed = db.execute(
        f"DELETE FROM session WHERE {condition} AND number {db.dialect.in_list('numbers')}"  # noqa: S608
        " RETURNING account, id",
        {"numbers": db.dialect.list_value([*numbers])},
    ).fetchall()
    for account, session_id in removed:
        db.changed(Topic.SESSION, account, session_id)
    return len(removed)


def remove_ended(db: Database, before: float) -> int:
    """Remove a portion of the sessions that ended before a time; return how many."""
    return remove_sessions(db, "ended_ms < :value ORDER BY ended_ms", to_ms(before))
