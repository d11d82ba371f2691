"""A host that takes no new sessions, and when those that it has are stopped.

What was asked is kept on the disk, so that a restart of the agent changes nothing and an order
that was overtaken is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

from agent.changes.feed import Feed
from agent.domain.clock import HostClock
from agent.domain.deadlines import Deadlines, deadline_by, due_by
from agent.domain.errors import StaleRevisionError
from agent.domain.session import Deadline, Drain, Session
from agent.state.record import Records
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

DRAIN = "drain"
"""The id of a drain among the deadlines of a host; no session has such an id."""

RENEWED_SECONDS = 10.0
"""How soon after its end a drain looks again for sessions that were not known then."""


@dataclass(frozen=True, slots=True)
class DrainOrder:
    """A drain begins, and what is left is stopped after `remaining` seconds; or it is called off.

    `ordered_time` is the end of `remaining` in Unix time by the caller's clock, which may differ
    from the host's.
    """

    revision: int
    draining: bool
    remaining: float | None = None
    ordered_time: float | None = None


class HostDrain:
    """Keeps what was asked last, and has its deadline among those of the host."""

    def __init__(
        self, records: Records, deadlines: Deadlines, feed: Feed, clock: HostClock
    ) -> None:
        self._records = records
        self._deadlines = deadlines
        self._feed = feed
        self._clock = clock
        self.now = Drain()
        """What holds now."""

    async def load(self) -> None:
        """Load the order to an earlier run of the agent."""
        self._take(await self._records.load_drain())

    async def set(self, order: DrainOrder) -> bool:
        """Begin or call off a drain; False when nothing changed.

        Revision 0 is of an operator on the host and holds until the control plane's next order.
        Raises StaleRevisionError and DiskFullError.
        """
        revision, known = order.revision, self.now.revision
        if 0 < revision < known:
            raise StaleRevisionError(revision, known)
        if 0 < revision == known:
            return False
        wanted = Drain(revision or known, order.draining)
        if order.draining and order.remaining is not None:
            deadline = deadline_by(self._clock, order.remaining)
            wanted = replace(wanted, deadline=deadline, ordered_time=order.ordered_time)
        await self._records.save_drain(wanted)
        log.info("drain changed", draining=order.draining)
        self._take(wanted)
        self._feed.host_changed()
        return True

    def renew(self) -> None:
        """Come due again, a little later."""
        self._deadlines.arm(DRAIN, deadline_by(self._clock, RENEWED_SECONDS))

    def empty_time(self, live: Iterable[Session]) -> float | None:
        """When the last of these sessions has to end, in Unix time; None when nothing says so."""
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
    """The deadline of a drain, in Unix time the later by the host's clock and the caller's.

    That time counts after a reboot, and either clock may have been wrong.
    """
    if drain.deadline is None or drain.ordered_time is None:
        return drain.deadline
    later = max(drain.deadline.expire_time, drain.ordered_time)
    return replace(drain.deadline, expire_time=later)
