"""Drain of a host: no new sessions, and a deadline for the others.

The order is kept on disk, so that it survives a restart and a stale one is rejected.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.changes.feed import Feed
from agent.domain.clock import HostClock
from agent.domain.errors import StaleRevisionError
from agent.domain.sessions.deadlines import Deadlines, deadline_by, due_by
from agent.domain.sessions.session import Deadline, Drain, Session
from agent.state.record import Records
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

DRAIN = "drain"  # The id of the drain in `Deadlines`; no session has such an id

RENEWED_SECONDS = 10.0
"""Interval after its deadline at which a drain ends sessions that turned up since."""


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """An order to drain the host and stop sessions after `remaining` seconds, or to cancel it.

    `ordered_time` is the end of `remaining` in Unix time by the caller's clock.
    """

    revision: int
    draining: bool
    remaining: float | None = None
    ordered_time: float | None = None


class HostDrain:
    """Keeps the latest order and registers its deadline."""

    def __init__(
        self, records: Records, deadlines: Deadlines, feed: Feed, clock: HostClock
    ) -> None:
        self._records = records
        self._deadlines = deadlines
        self._feed = feed
        self._clock = clock
        self.now = Drain()  # The current state

    async def load(self) -> None:
        """Load the order from disk."""
        self._take(await self._records.load_drain())

    async def set(self, order: DrainOrder) -> None:
        """Begin or cancel a drain; no-op if the revision is applied already.

        Revision 0 is an operator's order on the host, valid until the control plane's next one.
        Raises StaleRevisionError and DiskFullError.
        """
        revision = order.revision
        known = self.now.revision
        if 0 < revision < known:
            raise StaleRevisionError(revision, known)
        if 0 < revision == known:
            return
        wanted = Drain(revision or known, order.draining)
        if order.draining and order.remaining is not None:
            deadline = deadline_by(self._clock, order.remaining)
            wanted = replace(wanted, deadline=deadline, ordered_time=order.ordered_time)
        await self._records.save_drain(wanted)
        log.info("drain changed", draining=order.draining)
        self._take(wanted)
        self._feed.host_changed()

    def renew(self) -> None:
        """Set the deadline to RENEWED_SECONDS from now."""
        self._deadlines.arm(DRAIN, deadline_by(self._clock, RENEWED_SECONDS))

    def empty_time(self, live: Iterable[Session]) -> float | None:
        """Return the Unix time by which all of these sessions end; None if one has no deadline."""
        ends = []
        drained = _latest(self.now)
        for session in live:
            bounds = [each for each in (session.deadline, drained) if each]
            if not bounds:
                return None
            ends.append(min(due_by(self._clock, each) for each in bounds))
        now = self._clock.boottime()
        return self._clock.time() + max([now, *ends]) - now

    def _take(self, drain: Drain) -> None:
        self.now = drain
        self._deadlines.clear(DRAIN)
        deadline = _latest(drain)
        if deadline is not None:
            self._deadlines.arm(DRAIN, deadline)


def _latest(drain: Drain) -> Deadline | None:
    """Return the deadline of a drain, with the later Unix time of the host's and caller's clock.

    After a reboot the deadline is read in Unix time; either clock may have been wrong.
    """
    if drain.deadline is None or drain.ordered_time is None:
        return drain.deadline
    later = max(drain.deadline.expire_time, drain.ordered_time)
    return replace(drain.deadline, expire_time=later)
