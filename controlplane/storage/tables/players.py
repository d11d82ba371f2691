"""Players in the database, removed with their session."""

import json
from collections import Counter
from collections.abc import Sequence

from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.storage.engine.store import Database
from controlplane.storage.tables.session_rows import find_session, id_of
from controlplane.storage.tables.sessions import Session, read_session

MAX_PLAYERS = 2000  # Per session: every join returns all of them

MAX_PLAYERS_BYTES = 512 * 1024
"""Of a session's or a call's ids as JSON. MAX_PLAYERS ids of 256 ASCII characters fit."""

_FULL = (
    f"a session has at most {MAX_PLAYERS} players, with ids of at most {MAX_PLAYERS_BYTES} bytes"
    " as JSON"
)

_LIVE = "SELECT id FROM session WHERE account=:account AND ended_ms IS NULL"
_NAMED = "player IN (SELECT value FROM json_each(:players))"


def describe(db: Database, account: str, session_id: str) -> tuple[Session, list[str]] | None:
    """Read a session by its id or internal id, with its players in the order of joining."""
    session = read_session(db, account, session_id)
    return None if session is None else (session, joined(db, account, session.id))


def joined(db: Database, account: str, session_id: str) -> list[str]:
    """Read the players of a session in the order of joining."""
    sql = "SELECT player FROM player WHERE account=:account AND session=:session ORDER BY sequence"
    rows = db.execute(sql, {"account": account, "session": session_id})
    return [player for (player,) in rows]


def join(db: Database, account: str, name: str, players: Sequence[str]) -> list[str]:
    """Add players; return all joined, in the order of joining. Idempotent.

    Raises:
        NotFoundError: No live session has that id or internal id.
        InvalidRequestError: It would have too many players; none of these joined.
    """
    session_id, ended_ms = find_session(db, "id, ended_ms", account, name) or ("", 0)
    if ended_ms is not None:
        raise NotFoundError("session", name)
    values = {"account": account, "session": session_id, "players": json.dumps(players)}
    inserted = db.execute(
        "INSERT OR IGNORE INTO player(account, session, player)"
        " SELECT :account, :session, value FROM json_each(:players) ORDER BY key",
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
        f"DELETE FROM player WHERE account=:account AND session=:session AND {_NAMED}",  # noqa: S608
        {"account": account, "session": name, "players": json.dumps(players)},
    )
    _count(db, account, name, -removed.rowcount)
    return _left(db, account, [name]) or 0


def leave_all(db: Database, account: str, players: Sequence[str]) -> int:
    """Remove players from every live session; return how many are left in those they left.

    Raises:
        NotFoundError: No live session has any of them.
    """
    rows = db.execute(
        f"DELETE FROM player WHERE account=:account AND session IN ({_LIVE})"  # noqa: S608
        f" AND {_NAMED} RETURNING session",
        {"account": account, "players": json.dumps(players)},
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
        "SELECT sum(player_count) FROM session"
        " WHERE account=:account AND id IN (SELECT value FROM json_each(:sessions))"
    )
    values = {"account": account, "sessions": json.dumps(session_ids)}
    row = db.execute(sql, values).fetchone()
    return None if row[0] is None else int(row[0])


def _count(db: Database, account: str, session_id: str, change: int) -> None:
    """Change a session's player count. Not audited: games call all the time."""
    if change:
        db.execute(
            "UPDATE session SET player_count = player_count + :change"
            " WHERE account=:account AND id=:session",
            {"change": change, "account": account, "session": session_id},
        )
