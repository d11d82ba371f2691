"""Tracks which reports of one host are in rows, across restarts of the control plane."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from controlplane.domain.hosts.contract import HostSession, WrittenSession
from controlplane.domain.hosts.written import Written
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.written_reports import unchanged_since_written


@dataclass(slots=True)
class WrittenReports:
    """Spares a restarted control plane the parsing and comparing of sessions that did not change.

    `Downtime` stores `up_to` after each snapshot, and each minute.
    """

    host: HostState
    store: Store
    up_to: Written = field(init=False)

    def __post_init__(self) -> None:
        self.up_to = self.host.row.written

    def note(self, sequence: int, pending: Iterable[str]) -> None:
        """Note that all reports up to a sequence are written, except those of `pending`."""
        reported = [self.host.session(internal_id) for internal_id in pending]
        before = [session.sequence - 1 for session in reported if session is not None]
        self.up_to = Written(self.host.incarnation, min([sequence, *before]))

    async def read_changed(self, sessions: Sequence[WrittenSession]) -> list[HostSession]:
        """Return the sessions whose rows have changed since they were written.

        Raises:
            StoreError: The rows cannot be read.
        """
        under_way = self.host.under_way
        ids = [session.internal_id for session in sessions]
        unchanged = await self.store.look(unchanged_since_written, self.host.name, ids)
        changed: list[HostSession] = []
        for session in sessions:
            if session.internal_id in unchanged and session.internal_id not in under_way:
                self.host.note_claimed(session.internal_id)
                self.host.confirm_unread(session)
                continue
            read = self.host.session(session.internal_id)
            if read is not None:
                changed.append(read)
        return changed
