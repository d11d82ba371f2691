"""Players in the database. They belong to a run of their session, and are removed with it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.domain.events.players import (
    PlayersEvent,
    PlayersJoined,
    PlayersLeft,
    batches,
)
from controlplane.domain.events.sessions import SessionSubject
from controlplane.domain.sessions.players import MostPlayers
from controlplane.domain.sessions.sessions import Session
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_columns import SUBJECT
from controlplane.storage.tables.sessions.session_queries import find_session
from controlplane.storage.tables.sessions.session_rows import count_players, end_run
from controlplane.storage.tables.sessions.sessions import read_session
from tiltyard.runtime.clock import to_ms

MAX_PLAYERS = 2000  # Per session: every join returns all of them

MAX_PLAYERS_BYTES = 512 * 1024
"""Limit of the ids of a session or a call as JSON: MAX_PLAYERS ids of 256 ASCII characters fit."""

MAX_RUNS = 100  # Failed runs whose highest number of players is kept, as of those of a report

LATE_JOIN_SECONDS = 60.0
"""How long after its end a run may be reported, for joins in between to count for the next run.

The end is by the host's clock: one that is wrong must not keep the players of earlier runs.
"""

_FULL = (
    f"a session has at most {MAX_PLAYERS} players, with ids of at most {MAX_PLAYERS_BYTES} bytes"
    " as JSON"
)

_IS_RECORDED = (
    "EXISTS (SELECT 1 FROM application WHERE application.account = session.account"
    " AND application.name = session.application AND player_events)"
)
"""Whether the application of a session asks for events of players now."""

_RETURNING = " RETURNING player"


def most_players(db: Database, account: str, session_id: str) -> MostPlayers:
    """Read the highest numbers of players of a session."""
    sql = "SELECT most_players, earlier_players FROM session WHERE account=:account AND id=:id"
    row = db.execute(sql, {"account": account, "id": session_id}).fetchone()
    return MostPlayers(0, {}) if row is None else MostPlayers(row[0], dict(json.loads(row[1])))


def begin_run(db: Database, account: str, session_id: str, *, failed: float, now: float) -> None:
    """Remove the players of a run that has `failed`; later joins are those of the next run."""
    values = {"account": account, "session": session_id}
    until = to_ms(max(min(failed, now), now - LATE_JOIN_SECONDS))
    removed = db.execute(
        "DELETE FROM player WHERE account=:account AND session=:session AND joined_ms <= :until",
        values | {"until": until},
    )
    text, most = db.execute(
        "SELECT earlier_players, most_players FROM session WHERE account=:account AND id=:session",
        values,
    ).fetchone()
    earlier = [*json.loads(text), [to_ms(failed), most]]
    kept = json.dumps(earlier[-MAX_RUNS:])
    end_run(db, account, session_id, removed=removed.rowcount, earlier=kept)


def describe(db: Database, account: str, session_id: str) -> tuple[Session, list[str]] | None:
    """Read a session by its id or internal id, with its players in the order of joining."""
    session = read_session(db, account, session_id)
    return None if session is None else (session, joined(db, account, session.id))


def joined(db: Database, account: str, session_id: str) -> list[str]:
    """Read the players of a session in the order of joining."""
    sql = "SELECT player FROM player WHERE account=:account AND session=:session ORDER BY sequence"
    rows = db.execute(sql, {"account": account, "session": session_id})
    return [player for (player,) in rows]


def join(
    db: Database,
    account: str,
    name: str,
    players: Sequence[str],
    *,
    actor: Actor | None,
    now: float,
) -> list[str]:
    """Add players; return all joined, in the order of joining. Idempotent.

    `actor` is that of the events, None if no events of players are recorded.

    Raises:
        NotFoundError: No live session has that id or internal id.
        InvalidRequestError: It would have too many players; none of these joined.
    """
    found = find_session(db, f"id, ended_ms, {_IS_RECORDED}", account, name)
    session_id, ended_ms, is_recorded = found or ("", 0, False)
    if ended_ms is not None:
        raise NotFoundError("session", name)
    by = actor if is_recorded else None
    values = {
        "account": account,
        "session": session_id,
        "players": db.dialect.list_value(players),
        "now": to_ms(now),
    }
    inserted = db.execute(
        "INSERT INTO player(account, session, player, joined_ms)"  # noqa: S608
        f" SELECT :account, :session, value, :now FROM {db.dialect.elements('players')} AS joining"
        f" WHERE TRUE ORDER BY position ON CONFLICT DO NOTHING{'' if by is None else _RETURNING}",
        values,
    )
    added = [player for (player,) in inserted.fetchall()]
    everyone = joined(db, account, session_id)
    if inserted.rowcount and (
        len(everyone) > MAX_PLAYERS or len(json.dumps(everyone)) > MAX_PLAYERS_BYTES
    ):
        raise InvalidRequestError((Violation("players", _FULL),))
    _count(db, account, session_id, inserted.rowcount)
    if by is not None and added:
        changed = {session_id: _in_order(players, added)}
        _append(db, PlayersJoined, account, changed, actor=by, now=now)
    return everyone


def leave(
    db: Database,
    account: str,
    session_id: str,
    players: Sequence[str],
    *,
    actor: Actor | None,
    now: float,
) -> int:
    """Remove players from a session; return how many are left.

    `actor` is that of the events, None if no events of players are recorded.

    Raises:
        NotFoundError: There is no session of that id or internal id.
    """
    found = find_session(db, f"id, {_IS_RECORDED}", account, session_id)
    if found is None:
        raise NotFoundError("session", session_id)
    name, is_recorded = found
    by = actor if is_recorded else None
    removed = db.execute(
        f"DELETE FROM player WHERE account=:account AND session=:session"  # noqa: S608
        f" AND player {db.dialect.in_list('players')}{'' if by is None else _RETURNING}",
        {"account": account, "session": name, "players": db.dialect.list_value(players)},
    )
    gone = [player for (player,) in removed.fetchall()]
    _count(db, account, name, -removed.rowcount)
    if by is not None and gone:
        changed = {name: _in_order(players, gone)}
        _append(db, PlayersLeft, account, changed, actor=by, now=now)
    [left] = _sums(db, "sum(player_count)", account, [name])
    return int(left or 0)


def leave_all(
    db: Database, account: str, players: Sequence[str], *, actor: Actor | None, now: float
) -> int:
    """Remove players from every live session; return how many are left in those they left.

    `actor` is that of the events, None if no events of players are recorded.

    Raises:
        NotFoundError: No live session has any of them.
    """
    rows = db.execute(
        f"DELETE FROM player WHERE account=:account"  # noqa: S608
        f" AND player {db.dialect.in_list('players')} RETURNING session, player",
        {"account": account, "players": db.dialect.list_value(players)},
    ).fetchall()
    removed: dict[str, list[str]] = {}
    for session_id, player in rows:
        removed.setdefault(session_id, []).append(player)
    for session_id, gone in removed.items():
        _count(db, account, session_id, -len(gone))
    sums = f"sum(player_count), sum(CASE WHEN {_IS_RECORDED} THEN 1 ELSE 0 END)"
    left, recorded = _sums(db, sums, account, list(removed))
    if left is None:
        raise NotFoundError("player", players[0])
    if actor is not None and recorded:
        changed = {name: _in_order(players, gone) for name, gone in removed.items()}
        _append(db, PlayersLeft, account, changed, actor=actor, now=now)
    return int(left)


def _sums(db: Database, sums: str, account: str, session_ids: Sequence[str]) -> tuple[Any, ...]:
    """Read sums over sessions, each None if none of them exists."""
    sql = (
        f"SELECT {sums} FROM session"  # noqa: S608
        f" WHERE account=:account AND id {db.dialect.in_list('sessions')}"
    )
    values = {"account": account, "sessions": db.dialect.list_value(session_ids)}
    row: tuple[Any, ...] = db.execute(sql, values).fetchone()
    return row


def _append(
    db: Database,
    kind: type[PlayersEvent],
    account: str,
    changed: Mapping[str, Sequence[str]],
    *,
    actor: Actor,
    now: float,
) -> None:
    """Append the events of players by session, of those whose applications ask for them."""
    rows = db.execute(
        f"SELECT {SUBJECT} FROM session WHERE account=:account"  # noqa: S608
        f" AND id {db.dialect.in_list('sessions')} AND {_IS_RECORDED}",
        {"account": account, "sessions": db.dialect.list_value(list(changed))},
    ).fetchall()
    for row in rows:
        subject = SessionSubject(*row)
        named = subject.named(actor, now)
        for batch in batches(changed[subject.session_id]):
            db.append(kind(*named, players=batch))


def _in_order(players: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Return the players of a call that have changed, each once, in the order of the call."""
    found = frozenset(changed)
    return [player for player in dict.fromkeys(players) if player in found]


def _count(db: Database, account: str, session_id: str, change: int) -> None:
    """Change a session's player count. Not audited: games call all the time."""
    if change:
        count_players(db, account, session_id, change)
