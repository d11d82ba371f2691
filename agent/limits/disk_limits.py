"""Disk limits of sessions: measure what containers wrote, end those over their limit.

All containers of a host share a disk. Docker Engine supports quotas on few file systems
(`has_layer_quota`), and sets them above the limit. So containers are polled.

The engine walks all files of a container to measure it, so one is measured at a time, with a rest
in proportion to the time that took. Between two measurements a container is suspected when the
free space of the engine's disk has shrunk by as much as the container had left.
"""

import heapq
from dataclasses import dataclass

from agent.domain.errors import AgentError, ContainerGoneError
from agent.domain.sessions.session import Session
from agent.kernel.disks import Disks
from agent.sessions.manager import SessionManager
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import rest_after
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)

LOOK_SECONDS = 30.0  # Interval per container while measuring it is cheap and there are few
LOOKS_APART_SECONDS = 1.0
"""Average time between two measurements, so that many cheap containers do not keep a host busy."""
LOW_LOOK_SECONDS = 5.0  # Interval per container while the engine's disk is low on space
LOOK_LONGEST_SECONDS = 600.0  # Longest interval per container, however expensive it is
OWN_REST = 99.0  # Interval per container, as a multiple of the time that its last measurement took
REST_LONGEST_SECONDS = 60.0  # Longest pause between two measurements
IDLE_SECONDS = 3.0  # Poll interval while no container is due
LOOKS_OF_A_ROUND = 32  # Measurements before priorities are recomputed

_WRITES = frozenset({State.RUNNING, State.RESTARTING})


@dataclass(frozen=True, slots=True)
class _Look:
    """A measurement: bytes `written`, and `free` on the engine's disk; `at` is monotonic."""

    at: float
    took: float = 0.0
    written: int = 0
    free: int | None = None


class DiskLimits:
    """Measures the containers of a host, one at a time."""

    def __init__(self, runtime: Runtime, disks: Disks, sessions: SessionManager) -> None:
        self._runtime = runtime
        self._disks = disks
        self._sessions = sessions
        self._looks: dict[str, _Look] = {}

    async def run(self) -> None:
        """Measure until cancelled."""
        clock = self._runtime.clock
        while True:
            due = self._most_urgent()
            for session in due:
                look = await self._look(session)
                await clock.sleep(rest_after(look.took, REST_LONGEST_SECONDS))
            if not due:
                await clock.sleep(IDLE_SECONDS)

    def _most_urgent(self) -> list[Session]:
        """Sessions to measure: suspects, then the least recent, or the largest on a low disk."""
        now = self._runtime.clock.monotonic()
        free = self._disks.engine_free_bytes
        limited = {
            session.internal_id: session
            for session in self._sessions.all()
            if session.state in _WRITES
            and session.container
            and self._runtime.disk_limit(session.spec)
        }
        self._looks = {
            internal_id: self._looks.get(internal_id, _Look(now, free=free))
            for internal_id in limited
        }
        is_low = self._disks.engine_is_low
        due = []
        for internal_id, session in limited.items():
            look = self._looks[internal_id]
            grown = 0 if look.free is None or free is None else look.free - free
            suspected = grown > 0 and look.written + grown > self._runtime.disk_limit(session.spec)
            if now - look.at >= _interval(look, len(limited), soon=suspected or is_low):
                urgency = -look.written if is_low else look.at
                due.append((not suspected, urgency, internal_id))
        return [limited[key] for *_, key in heapq.nsmallest(LOOKS_OF_A_ROUND, due)]

    async def _look(self, session: Session) -> _Look:
        runtime = self._runtime
        internal_id = session.internal_id
        began = runtime.clock.monotonic()
        free = self._disks.engine_free_bytes
        written = self._looks[internal_id].written
        with contained("cannot measure disk use: internal error", session=internal_id):
            written = await self._measure(session, written)
        now = runtime.clock.monotonic()
        look = self._looks[internal_id] = _Look(now, now - began, written, free)
        return look

    async def _measure(self, session: Session, before: int) -> int:
        """Enforce the limit of a session; return the bytes that it has written, else `before`."""
        internal_id = session.internal_id
        written = before
        try:
            written = await self._runtime.engine.written_bytes(session.container)
        except ContainerGoneError:
            pass  # the session's task handles that
        except AgentError as error:  # a failed measurement ends no session
            log.warning("cannot measure disk use", session=internal_id, error=str(error))
        limit = self._runtime.disk_limit(session.spec)
        if limit and written > limit:
            log.warning("disk limit exceeded", session=internal_id, written=written)
            life = self._sessions.find(internal_id)
            if life is not None and not life.session.state.ended:
                self._sessions.end(life, EndReason.DISK)
        return written


def _interval(look: _Look, containers: int, *, soon: bool) -> float:
    if soon:
        return max(LOW_LOOK_SECONDS, rest_after(look.took, LOOK_LONGEST_SECONDS))
    interval = max(LOOK_SECONDS, OWN_REST * look.took, containers * LOOKS_APART_SECONDS)
    return min(interval, LOOK_LONGEST_SECONDS)
