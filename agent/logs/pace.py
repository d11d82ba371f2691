"""The part of the event loop that the followers of a host take together. Pure.

Each line costs the agent microseconds on the event loop that all calls share. A follower that
takes more than its part of the event loop therefore waits; unread lines stay in the engine's log.
Other followers never wait. The measured time is that of the clock: on a busy machine, where all
calls are slower, followers read less.
"""

from dataclasses import dataclass, field

PART_OF_LOOP = 0.05
"""Part of the time in which followers process lines. Parsing and sending lines, which is not
measured, takes three times as much."""
BURST_SECONDS = 0.1  # Of that part, which a follower may use at once after a pause


@dataclass(eq=False)
class FollowPace:
    """The time when each follower may read again, in seconds of a monotonic clock."""

    _due: dict[object, float] = field(default_factory=dict)

    def delay(self, reader: object, took: float, *, now: float) -> float:
        """Note that a follower has processed lines for some seconds; return how long it must wait.

        Followers that wait at the same time share the part.
        """
        waiting = sum(due > now for other, due in self._due.items() if other is not reader)
        cost = took / PART_OF_LOOP * (1 + waiting)
        due = max(self._due.get(reader, 0.0), now - BURST_SECONDS) + cost
        self._due[reader] = due
        return max(0.0, due - now)

    def leave(self, reader: object) -> None:
        """Forget a follower."""
        self._due.pop(reader, None)
