"""Players in the database. They belong to a run of their session, and are removed with it."""

import json
from collections import Counter
from collections.abc import Sequence

from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.domain.sessions.players import MostPlayers
from controlplane.domain.sessions.sessions import Session
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.sessions.session_queries import find_session, id_of
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
    db: Database, account: str, name: str, players: Sequence[str], *, now: float
) -> list[str]:
    """Add players; return all joined, in the order of joining. Idempotent.

    Raises:
        NotFoundError: No live session has that id or internal id.
        InvalidRequestError: It would have too many players; none of these joined.
    """
    session_id, ended_ms = find_session(db, "id, ended_ms", account, name) or ("", 0)
    if ended_ms is not None:
        raise NotFoundError("session", name)
    values = {
        "account": account,
        "session": session_id,
        "players": db.dialect.list_value(players),
        "now": to_ms(now),
    }
    inserted = db.execute(
        "INSERT INTO player(account, session, player, joined_ms)"  # noqa: S608
        f" SELECT :account, :session, value, :now FROM {db.dialect.elements('players')} AS joining"
        " WHERE TRUE ORDER BY position ON CONFLICT DO NOTHING",
        values,
    )
    everyone = joined(db, account, session_id)
    if inserted.rowcount and (
        len(everyone) > MAX_PLAYERS or len(json.dumps(everyone)) > MAX_PLAYERS_BYTES
    ):
        raise InvalidRequestError((Violation("players", _FULL),))
    _count(db, account, session_id, inserted.rowcount)
    return everyone


def leave(db: Database, account: str, session_id: str, players: Sequence[str]) -> int:
    """Remove players from a session; return how many are left.

    Raises:
        NotFoundError: There is no session of that id or internal id.
    """
    name = id_of(db, account, session_id)
    if name is None:
        raise NotFoundError("session", session_id)
    removed = db.execute(
        f"DELETE FROM player WHERE account=:account AND session=:session"  # noqa: S608
        f" AND player {db.dialect.in_list('players')}",
        {"account": account, "session": name, "players": db.dialect.list_value(players)},
    )
    _count(db, account, name, -removed.rowcount)
    return _left(db, account, [name]) or 0


def leave_all(db: Database, account: str, players: Sequence[str]) -> int:
    """Remove players from every live session; return how many are left in those they left.

    Raises:
        NotFoundError: No live session has any of them.
    """
    rows = db.execute(
        f"DELETE FROM player WHERE account=:account"  # noqa: S608
        f" AND player {db.dialect.in_list('players')} RETURNING session",
        {"account": account, "players": db.dialect.list_value(players)},
    ).fetchall()
    removed = Counter(session_id for (session_id,) in rows)
    for session_id, count in removed.items():
        _count(db, account, session_id, -count)
    left = _left(db, account, list(removed))
    if left is None:
        raise NotFoundError("player", players[0])
    return left


def _left(db: Database, account: str, session_ids: Sequence[str]) -> int | None:
    """Count the players of sessions; None if none exists."""
    sql = (
        "SELECT sum(player_count) FROM session"  # noqa: S608
        f" WHERE account=:account AND id {db.dialect.in_list('sessions')}"
    )
    values = {"account": account, "sessions": db.dialect.list_value(session_ids)}
    row = db.execute(sql, values).fetchone()
    return None if row[0] is None else int(row[0])


def _count(db: Database, account: str, session_id: str, change: int) -> None:
    """Change a session's player count. Not audited: games call all the time."""
    if change:
        count_players(db, account, session_id, change)
