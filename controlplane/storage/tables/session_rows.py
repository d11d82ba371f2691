"""Shared queries on sessions: ids, labels, ends, unanswered attempts, removal."""

import json
from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

from controlplane.domain.contract import Port
from controlplane.storage.engine.statements import PORTION, remove_some
from controlplane.storage.engine.store import ITSELF, Database, record_event
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import to_ms

_SORTED = json.JSONEncoder(sort_keys=True)


class Attempt(NamedTuple):
    """One try to start a session on one host, under its own internal id."""

    internal_id: str
    agent: str
    host: str


def find_session(db: Database, columns: str, account: str, name: str) -> tuple[Any, ...] | None:
    """Read columns of an account's session by its id, or else its internal id.

    In two queries: one with an OR would scan all sessions of the account.
    """
    values = {"account": account, "name": name}
    for key in ("id", "internal_id"):
        sql = f"SELECT {columns} FROM session WHERE {key}=:name AND account=:account"  # noqa: S608
        row: tuple[Any, ...] | None = db.execute(sql, values).fetchone()
        if row is not None:
            return row
    return None


def id_of(db: Database, account: str, name: str) -> str | None:
    """Return the id of an account's session by its id or internal id."""
    row = find_session(db, "id", account, name)
    return None if row is None else str(row[0])


def port_values(ports: Iterable[Port]) -> list[dict[str, object]]:
    """Return the JSON values of ports."""
    return [
        {"container": p.container, "protocol": p.protocol, "host": p.host, "tls": p.tls}
        for p in ports
    ]


def env_json(env: Mapping[str, str]) -> str:
    """Serialize injected variables; sorted, since the order of a protobuf map varies."""
    return _SORTED.encode(env)


def add_labels(db: Database, account: str, session_id: str, labels: Mapping[str, str]) -> None:
    """Index the labels of a session that has none yet.

    Of names that SQLite considers equal, as those that differ after a NUL, one is kept.
    """
    if labels:
        db.execute(
            "INSERT OR IGNORE INTO live_label(account, name, value, number)"
            " SELECT :account, key, value, number FROM session, json_each(:labels)"
            " WHERE account = :account AND session.id = :id",
            {"account": account, "id": session_id, "labels": json.dumps(dict(labels))},
        )


def remove_labels(db: Database, account: str, session_id: str) -> None:
    """Remove the labels of a session that has ended or gets others from the index."""
    db.execute(
        "DELETE FROM live_label WHERE number ="
        " (SELECT number FROM session WHERE account = :account AND id = :id)",
        {"account": account, "id": session_id},
    )


def remove_ended_parts(db: Database, account: str, session_id: str) -> None:
    """Remove what only a live session has: its labels for searches, and its players."""
    remove_labels(db, account, session_id)
    values = {"account": account, "id": session_id}
    players = db.execute("DELETE FROM player WHERE account=:account AND session=:id", values)
    if players.rowcount:
        db.execute("UPDATE session SET player_count=0 WHERE account=:account AND id=:id", values)


def _end_session(
    db: Database, agent: str, internal_id: str, *, reason: EndReason, now: float
) -> None:
    """End a session of an agent, as exited only if it was stopped. Idempotent."""
    row = db.execute(
        "UPDATE session SET state=:state, ended_ms=:now, end_reason=:reason, claim=NULL"
        " WHERE internal_id=:internal_id AND agent=:agent"
        " AND ended_ms IS NULL RETURNING account, id",
        {
            "state": State.EXITED if reason is EndReason.STOPPED else State.DEAD,
            "now": to_ms(now),
            "reason": reason,
            "internal_id": internal_id,
            "agent": agent,
        },
    ).fetchone()
    if row is not None:
        remove_ended_parts(db, *row)
        record_event(db, "session.ended", row[0], row[1], actor=ITSELF, now=now, reason=reason)


def end_stopped(db: Database, agent: str, internal_id: str, now: float) -> None:
    """End a session that its host, asked to stop it, does not have. Idempotent."""
    _end_session(db, agent, internal_id, reason=EndReason.STOPPED, now=now)
    note_stopped(db, agent, now, internal_id)


def live_on(db: Database, agent: str) -> list[str]:
    """Read the internal ids of a host's live sessions."""
    sql = "SELECT internal_id FROM session WHERE agent=? AND ended_ms IS NULL"
    return [row[0] for row in db.execute(sql, (agent,))]


def to_stop(db: Database, agent: str) -> list[str]:
    """Read what to stop on a host: unanswered attempts and requested stops."""
    rows = db.execute(
        "SELECT internal_id FROM unanswered WHERE agent=:agent AND stopped_ms IS NULL"
        " UNION SELECT internal_id FROM session WHERE agent=:agent AND ended_ms IS NULL"
        " AND stop_requested_ms IS NOT NULL",
        {"agent": agent},
    )
    return [row[0] for row in rows]


def has_row(db: Database, internal_id: str) -> bool:
    """Return whether a session's row has this internal id."""
    sql = "SELECT 1 FROM session WHERE internal_id=?"
    return db.execute(sql, (internal_id,)).fetchone() is not None


def end_all_missing(db: Database, agent: str, internal_ids: Iterable[str], now: float) -> None:
    """Apply `end_missing` to each session."""
    for internal_id in internal_ids:
        end_missing(db, agent, internal_id, now=now)


def end_missing(
    db: Database,
    agent: str,
    internal_id: str,
    *,
    now: float,
    reason: EndReason = EndReason.ENGINE_ERROR,
) -> None:
    """End a session that its host no longer has; one that never ran is freed instead."""
    row = db.execute(
        "SELECT account, id FROM session"
        " WHERE internal_id=:internal_id AND agent=:agent AND NOT confirmed",
        {"internal_id": internal_id, "agent": agent},
    ).fetchone()
    if row is None:
        _end_session(db, agent, internal_id, reason=reason, now=now)
        return
    # The control plane died before the answer: stop the session if it still starts.
    note_unanswered(db, agent, internal_id, now)
    db.execute("DELETE FROM session WHERE internal_id=?", (internal_id,))
    record_event(db, "session.not_started", row[0], row[1], actor=ITSELF, now=now)


def lose_sessions(db: Database, agent: str, now: float, *, starts_too: bool = False) -> None:
    """End the sessions of a removed or revoked host; starts are left to their tasks by default."""
    live = (
        "SELECT internal_id FROM session WHERE agent=:agent AND ended_ms IS NULL"
        " AND (confirmed OR :starts_too)"
    )
    for (internal_id,) in db.execute(live, {"agent": agent, "starts_too": starts_too}).fetchall():
        end_missing(db, agent, internal_id, now=now, reason=EndReason.HOST_LOST)
    note_stopped(db, agent, now)


def give_up_sessions(db: Database, agent: str, starting: Collection[str], now: float) -> None:
    """End the sessions of an unresponsive host, to be stopped if it returns.

    The attempts in `starting` are left to their tasks.
    """
    for internal_id in live_on(db, agent):
        if internal_id not in starting:
            note_unanswered(db, agent, internal_id, now)
            end_missing(db, agent, internal_id, now=now, reason=EndReason.HOST_LOST)


def note_unanswered(db: Database, agent: str, internal_id: str, now: float) -> None:
    """Record an attempt or claim as unanswered: stopped, and never claimed again. Idempotent."""
    db.execute(
        "INSERT OR IGNORE INTO unanswered(internal_id, agent, created_ms)"
        " VALUES (:internal_id, :agent, :now)",
        {"internal_id": internal_id, "agent": agent, "now": to_ms(now)},
    )


def is_unanswered(db: Database, agent: str, internal_id: str) -> bool:
    """Return whether an attempt is recorded as unanswered."""
    sql = "SELECT 1 FROM unanswered WHERE internal_id=:internal_id AND agent=:agent"
    return db.execute(sql, {"internal_id": internal_id, "agent": agent}).fetchone() is not None


def note_stopped(db: Database, agent: str, now: float, internal_id: str | None = None) -> None:
    """Record an unanswered attempt as stopped; without an id, all of the host."""
    db.execute(
        "UPDATE unanswered SET stopped_ms=:now WHERE agent=:agent AND stopped_ms IS NULL"
        " AND internal_id=coalesce(:internal_id, internal_id)",
        {"internal_id": internal_id, "agent": agent, "now": to_ms(now)},
    )


def remove_stopped(db: Database, before: float) -> int:
    """Remove a portion of attempts stopped before a time; return how many."""
    return remove_some(db, "unanswered", "stopped_ms < :value", to_ms(before))


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
    db.execute(
        "DELETE FROM session WHERE number IN (SELECT value FROM json_each(?))",
        (json.dumps(chosen),),
    )
    return len(chosen)


def surplus_of(db: Database, account: str, most: int, most_bytes: int) -> list[int]:
    """Find the ended sessions of an account beyond its newest ones; return their numbers."""
    rows = db.execute(
        "SELECT number, length(labels) + length(injected_env) + length(ports) + length(detail)"
        " FROM session WHERE account=? AND ended_ms IS NOT NULL"
        " ORDER BY ended_ms DESC, number DESC",
        (account,),
    )
    surplus = []
    kept_bytes = 0
    for kept, (number, size) in enumerate(rows, start=1):
        kept_bytes += size
        if kept > most or kept_bytes > most_bytes:
            surplus.append(number)
    return surplus


def remove_numbers(db: Database, numbers: Collection[int]) -> int:
    """Remove ended sessions by their numbers; return how many. They have no players."""
    removed = db.execute(
        "DELETE FROM session WHERE ended_ms IS NOT NULL"
        " AND number IN (SELECT value FROM json_each(?))",
        (json.dumps(list(numbers)),),
    )
    return int(removed.rowcount)


def remove_ended(db: Database, before: float) -> int:
    """Remove a portion of the sessions that ended before a time; return how many."""
    return remove_sessions(db, "ended_ms < :value ORDER BY ended_ms", to_ms(before))
