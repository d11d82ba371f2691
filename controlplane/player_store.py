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
            _record(db, event, inserted.rowcount)
            return _joined(db, account, session_id)

        return await self._store.run(transaction)

    async def leave(
        self, account: str, session_id: str, players: Sequence[str], actor: Actor, now_ms: int
    ) -> int | None:
        """Remove players from a session; return how many are left; None when it is unknown."""

        def transaction(db: Database) -> int | None:
            sql = "SELECT 1 FROM session WHERE account=? AND id=?"
            if not db.execute(sql, (account, session_id)).fetchone():
                return None
            removed = db.execute(
                "DELETE FROM player WHERE account=? AND session=?"
                " AND player IN (SELECT value FROM json_each(?))",
                (account, session_id, json.dumps(players)),
            )
            event = Event(now_ms, "players.left", account, actor, session_id)
            _record(db, event, removed.rowcount)
            return _count(db, account, session_id)

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
                event = Event(now_ms, "players.left", account, actor, session_id)
                _record(db, event, count)
            left = sum(_count(db, account, session_id) for session_id in removed)
            return left if removed else None

        return await self._store.run(transaction)


def _joined(db: Database, account: str, session_id: str) -> list[str]:
    sql = "SELECT player FROM player WHERE account=? AND session=? ORDER BY sequence"
    return [row[0] for row in db.execute(sql, (account, session_id))]


def _count(db: Database, account: str, session_id: str) -> int:
    sql = "SELECT count(*) FROM player WHERE account=? AND session=?"
    return int(db.execute(sql, (account, session_id)).fetchone()[0])


def _record(db: Database, event: Event, count: int) -> None:
    """Record how many players came or went, never who: the audit outlives the session."""
    if count:
        record_event(db, event, {"count": count})
