"""The lifetimes of a host's sessions: which one is over next.

A deadline of this boot is due by boot time, whatever the wall clock does. One of an earlier boot
is due by the wall clock, which is read at every look: setting the clock moves the deadline. While
that clock may be wrong, as on a machine that has just started, such a deadline is not due.
"""

import heapq

from agent.domain.clock import HostClock
from agent.domain.session import Deadline


def deadline_after(ttl: float, *, now: float, boottime: float, boot_id: str) -> Deadline:
    """The deadline `ttl` seconds from now."""
    return Deadline(expire_time=now + ttl, boot_id=boot_id, boottime=boottime + ttl)


def due_boottime(deadline: Deadline, *, now: float, boottime: float, boot_id: str) -> float:
    """The CLOCK_BOOTTIME of this boot at which the deadline is due.

    On the boot that made it, boot time decides, whatever the wall clock did; after a reboot there
    is only the wall clock to go by.
    """
    if deadline.boot_id == boot_id:
        return deadline.boottime
    return boottime + (deadline.expire_time - now)


HELD_SECONDS = 600.0
"""How long after boot deadlines of earlier boots wait for the wall clock to be synchronised."""
MOST_STALE = 64
"""Entries of the heap that stand for nothing any more, beside as many as there are deadlines."""


def deadline_by(clock: HostClock, ttl: float) -> Deadline:
    """The deadline `ttl` seconds from now, as a clock has it."""
    return deadline_after(ttl, now=clock.time(), boottime=clock.boottime(), boot_id=clock.boot_id)


def due_by(clock: HostClock, deadline: Deadline) -> float:
    """The CLOCK_BOOTTIME of this boot at which the deadline is due, as a clock has it."""
    return due_boottime(
        deadline, now=clock.time(), boottime=clock.boottime(), boot_id=clock.boot_id
    )


class Deadlines:
    """Due times by session; setting one again replaces it."""

    def __init__(self, clock: HostClock) -> None:
        self._clock = clock
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []
        self._earlier: dict[str, Deadline] = {}
        """Those of earlier boots: few, and due by the wall clock."""

    def arm(self, internal_id: str, deadline: Deadline) -> None:
        """Set the deadline of a session."""
        if deadline.boot_id == self._clock.boot_id:
            self.set(internal_id, deadline.boottime)
        else:
            self.clear(internal_id)
            self._earlier[internal_id] = deadline

    def set(self, internal_id: str, due: float) -> None:
        """Set the due time of a session, in seconds of CLOCK_BOOTTIME."""
        self._earlier.pop(internal_id, None)
        self._due[internal_id] = due
        heapq.heappush(self._heap, (due, internal_id))
        if len(self._heap) > 2 * len(self._due) + MOST_STALE:
            self._heap = [(due, internal_id) for internal_id, due in self._due.items()]
            heapq.heapify(self._heap)

    def clear(self, internal_id: str) -> None:
        """Forget a session; nothing happens when it has no deadline."""
        self._due.pop(internal_id, None)
        self._earlier.pop(internal_id, None)

    def next_due(self) -> float | None:
        """The earliest due time; None when there is none, or it waits for the wall clock."""
        self._drop_stale()
        soonest = [self._heap[0][0]] if self._heap else []
        if not self.held:
            soonest += [due_by(self._clock, each) for each in self._earlier.values()]
        return min(soonest, default=None)

    def pop_due(self) -> list[str]:
        """Take out and return all sessions that are due now, the earliest first."""
        boottime = self._clock.boottime()
        due: list[tuple[float, str]] = []
        self._drop_stale()
        while self._heap and self._heap[0][0] <= boottime:
            due.append(heapq.heappop(self._heap))
            del self._due[due[-1][1]]
            self._drop_stale()
        if self._earlier and not self.held:
            late = [
                (when, internal_id)
                for internal_id, deadline in self._earlier.items()
                if (when := due_by(self._clock, deadline)) <= boottime
            ]
            for _, internal_id in late:
                del self._earlier[internal_id]
            due = sorted(due + late)
        return [internal_id for _, internal_id in due]

    @property
    def held(self) -> int:
        """How many deadlines are not due before the wall clock is synchronised."""
        if not self._earlier or self._clock.boottime() >= HELD_SECONDS:
            return 0
        return 0 if self._clock.is_synchronised() else len(self._earlier)

    @property
    def warnings(self) -> tuple[str, ...]:
        """What an operator should know."""
        if not self.held:
            return ()
        return (f"{self.held} lifetimes of an earlier boot wait for the clock to be synchronised",)

    def snapshot(self) -> list[tuple[float, str]]:
        """All due times by CLOCK_BOOTTIME, the earliest first, for people."""
        earlier = {name: due_by(self._clock, each) for name, each in self._earlier.items()}
        return sorted((due, name) for name, due in (self._due | earlier).items())

    def _drop_stale(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
