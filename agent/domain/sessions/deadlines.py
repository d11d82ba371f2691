"""Deadlines of a host's sessions.

A deadline of this boot is due by boot time, regardless of the wall clock. One of an earlier boot
is due by the current wall clock, once that can be trusted.
"""

from agent.domain.clock import HostClock
from agent.domain.sessions.session import Deadline
from tiltyard.runtime.clock import is_trusted


def deadline_by(clock: HostClock, ttl: float) -> Deadline:
    """The deadline `ttl` seconds from now."""
    return Deadline(clock.time() + ttl, clock.boot_id, clock.boottime() + ttl)


def due_by(clock: HostClock, deadline: Deadline) -> float:
    """The due time of a deadline in CLOCK_BOOTTIME of this boot."""
    if deadline.boot_id == clock.boot_id:
        return deadline.boottime
    return clock.boottime() + (deadline.expire_time - clock.time())


class Deadlines:
    """Deadlines by session."""

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self._armed: dict[str, Deadline] = {}

    def arm(self, internal_id: str, deadline: Deadline) -> None:
        """Set or replace the deadline of a session."""
        self._armed[internal_id] = deadline

    def clear(self, internal_id: str) -> None:
        """Remove the deadline of a session, if any."""
        self._armed.pop(internal_id, None)

    def next_due(self) -> float | None:
        """The earliest due time in CLOCK_BOOTTIME; None without one, held deadlines excluded."""
        return min(self._due().values(), default=None)

    def pop_due(self) -> list[str]:
        """Remove and return all sessions that are due now, earliest first."""
        now = self._clock.boottime()
        due = self._due()
        over = sorted((name for name, when in due.items() if when <= now), key=due.__getitem__)
        for name in over:
            del self._armed[name]
        return over

    @property
    def warnings(self) -> tuple[str, ...]:
        """Warnings for the operator."""
        held = len(self._held())
        if not held:
            return ()
        return (f"{held} lifetimes of an earlier boot wait for the clock to be synchronised",)

    def _due(self) -> dict[str, float]:
        held = self._held()
        return {
            name: due_by(self._clock, each)
            for name, each in self._armed.items()
            if name not in held
        }

    def _held(self) -> set[str]:
        """Sessions whose deadlines wait for a synchronised wall clock."""
        boot = self._clock.boot_id
        earlier = {name for name, each in self._armed.items() if each.boot_id != boot}
        return earlier if earlier and not is_trusted(self._clock) else set()
