"""What agents report, written to the database, and what is to be stopped."""

from collections.abc import Collection, Iterable
from datetime import timedelta

from controlplane.domain.contract import HostSession
from controlplane.storage.engine.store import Database, Store
from controlplane.storage.tables.session_rows import end_missing, end_session
from controlplane.storage.tables.settling import IsOurs, Reporter, Settlement, Verdict, settle
from controlplane.storage.tables.unanswered import TO_STOP, note_stopped
from tiltyard.contract import EndReason, State


class ReportStore:
    """Transactions on what agents report."""

    def __init__(self, store: Store, *, is_ours: IsOurs, keep_ended: timedelta) -> None:
        """Adopt what has a valid ticket, unless it ended longer ago than `keep_ended`."""
        self._store = store
        self._is_ours = is_ours
        self._keep_ended_ms = keep_ended // timedelta(milliseconds=1)

    async def settle(
        self,
        agent: str,
        sessions: Iterable[HostSession],
        starting: Collection[str],
        now_ms: int,
    ) -> Settlement:
        """Write reported sessions and judge each.

        Those of the attempts in `starting` are left to the task that starts them.
        """
        reported = [s for s in sessions if s.internal_id not in starting]
        by = Reporter(agent, self._is_ours, now_ms, self._keep_ended_ms)

        def transaction(db: Database) -> Settlement:
            settlement = Settlement()
            for session in reported:
                settle(db, by, session, settlement)
            return settlement

        return await self._store.run(transaction)

    async def confirm(self, agent: str, session: HostSession, now_ms: int) -> Verdict:
        """Write that the current attempt of a session was started."""
        settlement = await self.settle(agent, (session,), (), now_ms)
        return settlement.verdicts[session.internal_id]

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
                end_missing(db, agent, internal_id, now_ms)

        await self._store.run(transaction)

    async def end_stopped(self, agent: str, internal_id: str, now_ms: int) -> None:
        """End a session that was to be stopped and that its host does not know."""
        await self._store.run(
            lambda db: end_session(
                db, agent, internal_id, state=State.EXITED, reason=EndReason.STOPPED, now_ms=now_ms
            )
        )

    async def to_stop(self, agent: str) -> list[str]:
        """Read what is still to be stopped on a host: unanswered starts and remembered stops."""

        def transaction(db: Database) -> list[str]:
            rows = db.execute(
                f"{TO_STOP}"  # noqa: S608
                " UNION SELECT internal_id FROM session WHERE agent=:agent AND ended_ms IS NULL"
                " AND stop_requested_ms IS NOT NULL",
                {"agent": agent},
            )
            return [row[0] for row in rows]

        return await self._store.run(transaction)

    async def has_row(self, internal_id: str) -> bool:
        """Return whether this is the end of a caller's session, not of an abandoned attempt."""

        def transaction(db: Database) -> bool:
            found = db.execute("SELECT 1 FROM session WHERE internal_id=?", (internal_id,))
            return found.fetchone() is not None

        return await self._store.run(transaction)

    async def mark_stopped(self, agent: str, internal_id: str, now_ms: int) -> None:
        """Note that what came of an unanswered start has ended or can no longer begin."""
        await self._store.run(lambda db: note_stopped(db, agent, now_ms, internal_id))
