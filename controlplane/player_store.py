"""Players in the database. A session that is forgotten takes its players with it."""

import json
from collections import Counter
from collections.abc import Sequence

from sqlite_utils import Database

from controlplane.store import Actor, Event, Store, record_event

_LIVE = "SELECT id FROM session WHERE account=?1 AND ended_ms IS NULL"


class PlayerStore:
    """Transactions on the players of sessions."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def joined(self, account: str, session_id: str) -> list[str]:
        """Read the players of a session in the order of joining."""
        return await self._store.run(lambda db: _joined(db, account, session_id))

    async def join(
        self, account: str, session_id: str, players: Sequence[str], actor: Actor, now_ms: int
    ) -> list[str] | None:
        """Add players that are not joined yet; return all that are; None when nothing lives."""

        def transaction(db: Database) -> list[str] | None:
            if not db.execute(f"{_LIVE} AND id=?2", (account, session_id)).fetchone():
                return None
            inserted = db.execute(
                "INSERT OR IGNORE INTO player(account, session, player)"
                " SELECT ?1, ?2, value FROM json_each(?3) ORDER BY key",
                (account, session_id, json.dumps(players)),
            )
            event = Event(now_ms, "players.joined", account, actor, session_id)
            _count(db, event, inserted.rowcount)
            return _joined(db, account, session_id)

        return await self._store.run(transaction)

    async def leave(
        self, account: str, session_id: str, players: Sequence[str], actor: Actor, now_ms: int
    ) -> int | None:
        """Remove players from a session; return how many are left; None when it is unknown."""

        def transaction(db: Database) -> int | None:
            removed = db.execute(
                "DELETE FROM player WHERE account=? AND session=?"
                " AND player IN (SELECT value FROM json_each(?))",
                (account, session_id, json.dumps(players)),
            )
            _count(
                db, Event(now_ms, "players.left", account, actor, session_id), -removed.rowcount
            )
            return _left(db, account, [session_id])

        return await self._store.run(transaction)

    async def leave_all(
        self, account: str, players: Sequence[str], actor: Actor, now_ms: int
    ) -> int | None:
        """Remove players from every live session; return how many are left in those they left.

        None when no live session had any of them.
        """

        def transaction(db: Database) -> int | None:
            rows = db.execute(
                f"DELETE FROM player WHERE account=?1 AND session IN ({_LIVE})"  # noqa: S608
                " AND player IN (SELECT value FROM json_each(?2)) RETURNING session",
                (account, json.dumps(players)),
            ).fetchall()
            removed = Counter(session_id for (session_id,) in rows)
            for session_id, count in removed.items():
                _count(db, Event(now_ms, "players.left", account, actor, session_id), -count)
            return _left(db, account, list(removed))

        return await self._store.run(transaction)


def _joined(db: Database, account: str, session_id: str) -> list[str]:
    sql = "SELECT player FROM player WHERE account=? AND session=? ORDER BY sequence"
    return [row[0] for row in db.execute(sql, (account, session_id))]


def _left(db: Database, account: str, session_ids: Sequence[str]) -> int | None:
    """Sum up the players of sessions; None when none is known."""
    sql = (
        "SELECT sum(player_count) FROM session"
        " WHERE account=? AND id IN (SELECT value FROM json_each(?))"
    )
    row = db.execute(sql, (account, json.dumps(session_ids))).fetchone()
    return None if row[0] is None else int(row[0])


def _count(db: Database, event: Event, change: int) -> None:
    """Write on the session and in the audit how many players came or went.

    Never who: the audit outlives the session.
    """
    if change:
        db.execute(
            "UPDATE session SET player_count = player_count + ? WHERE account=? AND id=?",
            (change, event.account, event.object),
        )
        record_event(db, event, {"count": abs(change)})
