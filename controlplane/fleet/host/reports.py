"""Reports of agents on their sessions, sent to the database."""

from collections.abc import Collection, Iterable
from dataclasses import KW_ONLY, dataclass

from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.sessions.adoption import Verdicts
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import own_queue
from controlplane.storage.tables.hosts.conditions import write_reported
from controlplane.storage.tables.sessions.reports import ReadTicket, Reporter, write_stopped


@dataclass(eq=False)
class Reports:
    """Writes reports of agents.

    Adopts sessions with a valid ticket, unless they ended more than `keep_ended` seconds ago. All
    reports are in the queue of the control plane itself, and so written in the order in which they
    are sent: the answer to a start, which a caller's task sends, never replaces a later report.
    """

    store: Store
    _: KW_ONLY
    read_ticket: ReadTicket
    keep_ended: float

    async def write(
        self,
        agent: str,
        sessions: Iterable[HostSession],
        now: float,
        starting: Collection[str] = (),
    ) -> Verdicts:
        """Write and evaluate reported sessions, except those of attempts in `starting`."""
        reported = [s for s in sessions if s.internal_id not in starting]
        if not reported:
            return {}
        with own_queue():
            return await self.store.run(write_reported, self._reporter(agent, now), reported)

    async def write_stopped(self, agent: str, session: HostSession, now: float) -> None:
        """Write a session as its host answered a stop, which confirms the order."""
        with own_queue():
            await self.store.run(write_stopped, self._reporter(agent, now), session)

    def _reporter(self, agent: str, now: float) -> Reporter:
        return Reporter(agent, self.read_ticket, now, self.keep_ended)
