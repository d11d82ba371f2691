"""What agents report, written to the database, and the ledger of abandoned attempts.

Settling a reported session: the current attempt of a row is kept; an attempt in the ledger or of
an ended row is stopped; another is adopted when its identity names an account whose id is free,
else stopped. An ended row never comes back.
"""

import json
from collections.abc import Collection, Iterable
from dataclasses import asdict
from enum import Enum, auto
from typing import Any

from sqlite_utils import Database

from controlplane.fleet.contract import EndReason, HostSession, State
from controlplane.storage.account_store import has_account
from controlplane.storage.store import ITSELF, Actor, Event, Store, record_event


class Verdict(Enum):
    """What is to be done about a reported session."""

    KEEP = auto()
    STOP = auto()


class ReportStore:
    """Transactions on what agents report."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def settle(
        self,
        agent: str,
        sessions: Iterable[HostSession],
        starting: Collection[str],
        now_ms: int,
    ) -> dict[str, Verdict]:
        """Write reported sessions and judge each, by internal id.

        Those of the attempts in `starting` are left to the task that starts them.
        """
        reported = [s for s in sessions if s.internal_id not in starting]
        return await self._store.run(
            lambda db: {s.internal_id: _settle(db, agent, s, now_ms) for s in reported}
        )

    async def confirm(self, agent: str, session: HostSession, now_ms: int) -> Verdict:
        """Write that the current attempt of a session was started."""
        return await self._store.run(lambda db: _settle(db, agent, session, now_ms))

    async def live_on(self, agent: str) -> list[str]:
        """Read the internal ids of the sessions that should live on a host."""

        def transaction(db: Database) -> list[str]:
            sql = "SELECT internal_id FROM session WHERE agent=? AND ended_ms IS NULL"
            return [row[0] for row in db.execute(sql, (agent,))]

        return await self._store.run(transaction)

    async def end_missing(self, agent: str, internal_ids: Iterable[str], now_ms: int) -> None:
        """End sessions that their host no longer has; one that never ran is freed instead."""

        def transaction(db: Database) -> None:
            for internal_id in internal_ids:
                _end_missing(db, agent, internal_id, now_ms)

        await self._store.run(transaction)

    async def end_stopped(self, agent: str, internal_id: str, now_ms: int) -> None:
        """End a session that was to be stopped and that its host does not know."""
        await self._store.run(
            lambda db: _end(
                db, agent, internal_id, state=State.EXITED, reason=EndReason.STOPPED, now_ms=now_ms
            )
        )

    async def to_stop(self, agent: str) -> list[str]:
        """Read what is still to be stopped on a host: ledger entries and remembered stops."""

        def transaction(db: Database) -> list[str]:
            rows = db.execute(
                "SELECT internal_id FROM abandoned WHERE agent=?1 AND stopped_ms IS NULL"
                " UNION SELECT internal_id FROM session WHERE agent=?1 AND ended_ms IS NULL"
                " AND stop_requested_ms IS NOT NULL",
                (agent,),
            )
            return [row[0] for row in rows]

        return await self._store.run(transaction)

    async def has_row(self, internal_id: str) -> bool:
        """Tell whether this is what a caller's session became, rather than a given-up attempt."""

        def transaction(db: Database) -> bool:
            found = db.execute("SELECT 1 FROM session WHERE internal_id=?", (internal_id,))
            return found.fetchone() is not None

        return await self._store.run(transaction)

    async def mark_stopped(self, internal_id: str, now_ms: int) -> None:
        """Settle a ledger entry: what came of the attempt has ended or can no longer start."""
        await self._store.run(
            lambda db: db.execute(
                "UPDATE abandoned SET stopped_ms=? WHERE internal_id=?", (now_ms, internal_id)
            )
        )


def _settle(db: Database, agent: str, session: HostSession, now_ms: int) -> Verdict:
    row = db.execute(
        "SELECT agent, ended_ms, stop_requested_ms FROM session WHERE internal_id=?",
        (session.internal_id,),
    ).fetchone()
    if row is None:
        return _settle_unknown(db, agent, session, now_ms)
    owner, ended_ms, stop_requested_ms = row
    if owner != agent or ended_ms is not None:
        # An agent speaks only for the sessions that were placed on it.
        return Verdict.KEEP if session.state.ended else Verdict.STOP
    _write(db, agent, session, now_ms)
    wanted_gone = stop_requested_ms is not None and not session.state.ended
    return Verdict.STOP if wanted_gone else Verdict.KEEP


def _settle_unknown(db: Database, agent: str, session: HostSession, now_ms: int) -> Verdict:
    if session.state.ended or session.state is State.CREATED:
        return Verdict.KEEP  # nothing to adopt: it is over, or may still be undone
    served = db.execute("SELECT 1 FROM agent WHERE name=? AND removed_ms IS NULL", (agent,))
    if not served.fetchone():
        return Verdict.KEEP  # its last words: the agent was removed, nobody follows it
    known = db.execute("SELECT 1 FROM abandoned WHERE internal_id=?", (session.internal_id,))
    identity = session.identity
    if known.fetchone() or not has_account(db, identity.account):
        return Verdict.STOP
    adopted = db.execute(
        "INSERT OR IGNORE INTO session(account, id, internal_id, agent, state, application, tag,"
        " location, labels, external_id, nano_cpus, memory_bytes, created_ms)"
        " VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
        (
            identity.account,
            identity.session_id,
            session.internal_id,
            agent,
            session.state,
            identity.application,
            identity.tag,
            identity.location,
            json.dumps(dict(identity.labels)),
            identity.external_id,
            session.reservation.nano_cpus,
            session.reservation.memory_bytes,
            min(session.create_ms, now_ms),
        ),
    )
    if adopted.rowcount == 0:
        return Verdict.STOP
    _record(db, "session.adopted", Actor(agent), (identity.account, identity.session_id), now_ms)
    _write(db, agent, session, now_ms)
    return Verdict.KEEP


def _write(db: Database, agent: str, session: HostSession, now_ms: int) -> None:
    ended = session.state.ended
    # A host's wrong clock must neither keep a row for ever nor have it forgotten at once.
    db.execute(
        "UPDATE session SET confirmed=1, state=?, host=?, ports=?, injected_env=?,"
        " ended_ms=max(created_ms, ?), end_reason=?, exit_code=?, detail=? WHERE internal_id=?",
        (
            session.state,
            session.host,
            json.dumps([asdict(port) for port in session.ports]),
            json.dumps(dict(session.injected_env)),
            min(session.end_ms or now_ms, now_ms) if ended else None,
            session.end_reason,
            session.exit_code,
            session.detail,
            session.internal_id,
        ),
    )
    if ended:
        key = (session.identity.account, session.identity.session_id)
        _record(db, "session.ended", Actor(agent), key, now_ms, reason=session.end_reason)


def _end_missing(db: Database, agent: str, internal_id: str, now_ms: int) -> None:
    row = db.execute(
        "SELECT account, id FROM session WHERE internal_id=? AND agent=? AND NOT confirmed",
        (internal_id, agent),
    ).fetchone()
    if row is None:
        reason = EndReason.ENGINE_ERROR
        _end(db, agent, internal_id, state=State.DEAD, reason=reason, now_ms=now_ms)
        return
    # A start whose control plane died before the answer: should it still come, it is stopped.
    db.execute(
        "INSERT OR IGNORE INTO abandoned(internal_id, agent, created_ms) VALUES (?,?,?)",
        (internal_id, agent, now_ms),
    )
    db.execute("DELETE FROM session WHERE internal_id=?", (internal_id,))
    _record(db, "session.not_started", ITSELF, row, now_ms)


def _end(
    db: Database, agent: str, internal_id: str, *, state: State, reason: EndReason, now_ms: int
) -> None:
    row = db.execute(
        "UPDATE session SET state=?, ended_ms=?, end_reason=? WHERE internal_id=? AND agent=?"
        " AND ended_ms IS NULL RETURNING account, id",
        (state, now_ms, reason, internal_id, agent),
    ).fetchone()
    if row is not None:
        _record(db, "session.ended", ITSELF, row, now_ms, reason=reason)


def _record(
    db: Database, kind: str, actor: Actor, key: tuple[str, str], now_ms: int, **data: Any
) -> None:
    record_event(db, Event(now_ms, kind, key[0], actor, key[1]), data)
