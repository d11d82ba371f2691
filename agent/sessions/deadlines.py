"""The lifetimes of a host's sessions: which one is over next. Pure, the time as an argument.

`deadline_by` and `due_by` ask a clock for it.
"""

from __future__ import annotations

import heapq

from agent.clock import Clock
from agent.sessions.session import Deadline


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


MOST_STALE = 64
"""Entries of the heap that stand for nothing any more, beside as many as there are deadlines."""


def deadline_by(clock: Clock, ttl: float) -> Deadline:
    """The deadline `ttl` seconds from now, as a clock has it."""
    return deadline_after(ttl, now=clock.time(), boottime=clock.boottime(), boot_id=clock.boot_id)


def due_by(clock: Clock, deadline: Deadline) -> float:
    """The CLOCK_BOOTTIME of this boot at which the deadline is due, as a clock has it."""
    return due_boottime(
        deadline, now=clock.time(), boottime=clock.boottime(), boot_id=clock.boot_id
    )


class Deadlines:
    """Due times by session; setting one again replaces it."""

    def __init__(self) -> None:
        self._due: dict[str, float] = {}
        self._heap: list[tuple[float, str]] = []

    def set(self, internal_id: str, due: float) -> None:
        """Set the due time of a session, in seconds of CLOCK_BOOTTIME."""
        self._due[internal_id] = due
        heapq.heappush(self._heap, (due, internal_id))
        if len(self._heap) > 2 * len(self._due) + MOST_STALE:
            self._heap = [(due, internal_id) for internal_id, due in self._due.items()]
            heapq.heapify(self._heap)

    def clear(self, internal_id: str) -> None:
        """Forget a session; nothing happens when it has no deadline."""
        self._due.pop(internal_id, None)

    def next_due(self) -> float | None:
        """The earliest due time; None when there is none."""
        self._drop_stale()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, boottime: float) -> list[str]:
        """Take out and return all sessions that are due, the earliest first."""
        due: list[str] = []
        self._drop_stale()
        while self._heap and self._heap[0][0] <= boottime:
            _, internal_id = heapq.heappop(self._heap)
            del self._due[internal_id]
            due.append(internal_id)
            self._drop_stale()
        return due

    def snapshot(self) -> list[tuple[float, str]]:
        """All due times, the earliest first, for people."""
        return sorted((due, internal_id) for internal_id, due in self._due.items())

    def _drop_stale(self) -> None:
        while self._heap and self._due.get(self._heap[0][1]) != self._heap[0][0]:
            heapq.heappop(self._heap)
