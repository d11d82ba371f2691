"""Drains of the host: its sessions learn of the end, and end when it comes."""

import asyncio
from collections.abc import Callable

from agent.domain.errors import AgentError
from agent.sessions.life import Life
from agent.sessions.reservations import Reservations
from agent.state.drain import DrainOrder
from tiltyard.contract import EndReason
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner, contained

log = get_logger(__name__)


class Drains:
    """Carries out drain orders on all sessions; `lives` returns them, `end` stops one."""

    def __init__(
        self,
        reservations: Reservations,
        lives: Callable[[], list[Life]],
        end: Callable[[Life, EndReason], None],
    ) -> None:
        self._reservations = reservations
        self._lives = lives
        self._end = end
        self.tasks = TaskOwner[None](AgentError)
        self._lock = asyncio.Lock()

    async def order(self, order: DrainOrder) -> tuple[float | None, int]:
        """Begin or cancel a drain, and update every session.json, also for a repeated order.

        Returns the Unix time by which the host is empty, None if unbounded, and the number of
        sessions. Raises StaleRevisionError and DiskFullError.
        """
        # It completes also if the caller disconnects.
        await self.tasks.finish(self._order(order), "drain")
        live = [
            life.session
            for life in self._lives()
            if not (life.removed.is_set() or _is_left_out(life))
        ]
        return self._reservations.drain.empty_time(live), len(live)

    def end_all(self) -> None:
        """End all live sessions, and soon again those that were missed."""
        for life in self._lives():
            if not life.session.state.ended:
                internal_id = life.session.internal_id
                log.info("ended by a drain", session=internal_id)
                with contained("cannot end a session: internal error", session=internal_id):
                    self._end(life, EndReason.DRAIN)
        self._reservations.drain.renew()

    async def _order(self, order: DrainOrder) -> None:
        async with self._lock:
            await self._reservations.drain.set(order)
            for life in self._lives():
                if life.started and not life.session.state.ended:
                    internal_id = life.session.internal_id
                    with contained("cannot publish: internal error", session=internal_id):
                        await life.publish()


def _is_left_out(life: Life) -> bool:
    """True for a session that has ended or that the host itself may stop."""
    return life.session.state.ended or life.session.is_given_back
