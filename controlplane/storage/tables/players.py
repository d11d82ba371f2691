"""Players in the database. A session that is forgotten takes its players with it."""

import json
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from controlplane.domain.errors import InvalidRequestError, NotFoundError, Violation
from controlplane.storage.engine.store import Database, Store
from controlplane.storage.tables.session_rows import id_of
from controlplane.storage.tables.sessions import Session, read_session

MAX_PLAYERS = 2000
"""Of one session: every join answers with all of them."""

MAX_PLAYERS_BYTES = 512 * 1024
"""Of the ids of a session, and of a call, as JSON. MAX_PLAYERS ids of 256 ASCII characters fit."""

_FULL = (
    f"a session has at most {MAX_PLAYERS} players, with ids of at most {MAX_PLAYERS_BYTES} bytes"
    " as JSON"
)

_MAX_ID_BYTES = 256 * len(r"\ud83c\udfae") + len('"", ')
"""Of one id as JSON."""

FEW = 100
"""Players that are read where others wait: some 0.1 ms. More are read beside those."""

_LIVE = "SELECT id FROM session WHERE account=:account AND ended_ms IS NULL"
_JOINED = "SELECT sequence, player FROM player WHERE account=:account AND session=:session"
_NAMED = "player IN (SELECT value FROM json_each(:players))"


class _Joined(NamedTuple):
    """The session, the number of the last player of all, and the players of a call with theirs."""

    session_id: str
    last: int
    named: list[tuple[int, str]]


async def describe(
    store: Store, account: str, session_id: str
) -> tuple[Session, list[str]] | None:
    """Read a session by its id or internal id, with its players in the order of joining.

    Few players are those of the moment as of which the session is read.
    """
    found = await store.look(_described, account, session_id)
    if found is None:
        return None
    session, players = found
    if players is None:
        players = await store.read(joined, account, session.id)
    return session, players


def _described(
    db: Database, account: str, session_id: str
) -> tuple[Session, list[str] | None] | None:
    session = read_session(db, account, session_id)
    if session is None:
        return None
    return session, _few(db, account, session.id, session.player_count)


def joined(db: Database, account: str, session_id: str) -> list[str]:
    """Read the players of a session in the order of joining."""
    rows = db.execute(f"{_JOINED} ORDER BY sequence", {"account": account, "session": session_id})
    return [player for _, player in rows]


async def join(store: Store, account: str, session_id: str, players: Sequence[str]) -> list[str]:
    """Add players that are not joined yet; return all that are, in the order of joining.

    Raises:
        NotFoundError: No session of that id or internal id lives.
        InvalidRequestError: It would have too many players; none of these joined.
    """
    added = await store.run(_join, account, session_id, players)
    if not isinstance(added, _Joined):
        return added
    # All of them are read beside the transactions. Who joined later is left out, and who of
    # this call has left again stays in: the answer has what the call made.
    found = await store.read(_joined_until, account, added.session_id, added.last)
    return [player for _, player in sorted({*found, *added.named})]


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


def _join(db: Database, account: str, name: str, players: Sequence[str]) -> _Joined | list[str]:
    """Add players, and return all that are joined where these are few."""
    session_id = id_of(db, account, name) or name
    values = {"account": account, "session": session_id, "players": json.dumps(players)}
    live = db.execute(
        "SELECT player_count FROM session"
        " WHERE account=:account AND id=:session AND ended_ms IS NULL",
        values,
    ).fetchone()
    if live is None:
        raise NotFoundError("session", name)
    before = db.execute(f"{_JOINED} AND {_NAMED}", values).fetchall()
    new = len(set(players)) - len(before)
    if new and not _have_room(db, account, session_id, live[0] + new, players):
        raise InvalidRequestError((Violation("players", _FULL),))
    inserted = db.execute(
        "INSERT OR IGNORE INTO player(account, session, player)"
        " SELECT :account, :session, value FROM json_each(:players) ORDER BY key",
        values,
    )
    _count(db, account, session_id, inserted.rowcount)
    few = _few(db, account, session_id, live[0] + inserted.rowcount)
    if few is not None:
        return few
    named = db.execute(f"{_JOINED} AND {_NAMED}", values).fetchall()
    last = db.execute("SELECT max(sequence) FROM player").fetchone()[0]
    return _Joined(session_id, int(last), named)


def _joined_until(db: Database, account: str, session_id: str, last: int) -> list[tuple[int, str]]:
    values = {"account": account, "session": session_id, "last": last}
    return db.execute(f"{_JOINED} AND sequence <= :last", values).fetchall()


def _have_room(
    db: Database, account: str, session_id: str, count: int, players: Sequence[str]
) -> bool:
    """Return whether a session may have `count` players once these have joined it."""
    if count > MAX_PLAYERS:
        return False
    if count * _MAX_ID_BYTES <= MAX_PLAYERS_BYTES:
        return True
    others = joined(db, account, session_id)
    return len(json.dumps(list({*others, *players}))) <= MAX_PLAYERS_BYTES


def _few(db: Database, account: str, session_id: str, count: int) -> list[str] | None:
    """Read `count` players in the order of joining; None where they are not few."""
    if count > FEW:
        return None
    return joined(db, account, session_id) if count else []


def _left(db: Database, account: str, session_ids: Sequence[str]) -> int | None:
    """Sum up the players of sessions; None when none is known."""
    sql = (
        "SELECT sum(player_count) FROM session"
        " WHERE account=:account AND id IN (SELECT value FROM json_each(:sessions))"
    )
    values = {"account": account, "sessions": json.dumps(session_ids)}
    row = db.execute(sql, values).fetchone()
    return None if row[0] is None else int(row[0])


def _count(db: Database, account: str, session_id: str, change: int) -> None:
    """Add to the number of players of a session; no audit line, since games call all the time."""
    if change:
        db.execute(
            "UPDATE session SET player_count = player_count + :change"
            " WHERE account=:account AND id=:session",
            {"change": change, "account": account, "session": session_id},
        )
