"""The lifetimes of a host's sessions: which one is over next.

A deadline of this boot is due by boot time, whatever the wall clock does. One of an earlier boot
is due by the wall clock, which is read at every look: setting the clock moves the deadline. While
that clock may be wrong, as on a machine that has just started, such a deadline is not due.
"""

from agent.domain.clock import HostClock
from agent.domain.session import Deadline

HELD_SECONDS = 600.0
"""How long after boot deadlines of earlier boots wait for the wall clock to be synchronised."""


def deadline_by(clock: HostClock, ttl: float) -> Deadline:
    """The deadline `ttl` seconds from now."""
    return Deadline(clock.time() + ttl, clock.boot_id, clock.boottime() + ttl)


def due_by(clock: HostClock, deadline: Deadline) -> float:
    """The CLOCK_BOOTTIME of this boot at which the deadline is due."""
    if deadline.boot_id == clock.boot_id:
        return deadline.boottime
    return clock.boottime() + (deadline.expire_time - clock.time())


class Deadlines:
    """Deadlines by session; setting one again replaces it."""

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self._armed: dict[str, Deadline] = {}

    def arm(self, internal_id: str, deadline: Deadline) -> None:
        """Set the deadline of a session."""
        self._armed[internal_id] = deadline

    def clear(self, internal_id: str) -> None:
        """Forget a session; nothing happens when it has no deadline."""
        self._armed.pop(internal_id, None)

    def next_due(self) -> float | None:
        """The earliest due time by CLOCK_BOOTTIME; None when none is set but for those held."""
        return min(self._due().values(), default=None)

    def pop_due(self) -> list[str]:
        """Take out and return all sessions that are due now, the earliest first."""
        now, due = self._clock.boottime(), self._due()
        over = sorted((name for name, when in due.items() if when <= now), key=due.__getitem__)
        for name in over:
            del self._armed[name]
        return over

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
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
        """Sessions whose deadlines are not due before the wall clock is synchronised."""
        boot = self._clock.boot_id
        earlier = {name for name, each in self._armed.items() if each.boot_id != boot}
        if not earlier or self._clock.boottime() >= HELD_SECONDS:
            return set()
        return set() if self._clock.is_synchronised() else earlier
