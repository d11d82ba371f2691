"""The rate at which the followers of a host read logs together. Pure.

Each line costs the agent microseconds on the event loop that all calls share. So followers that
read more than the host allows wait, each as long as its part requires; what they have not read
stays in the engine's log. A follower that reads less than that never waits.
"""

from dataclasses import dataclass, field

MOST_LINES = 40_000  # A second: a line takes some 4 millionths of one, and as much to send
MOST_BYTES = 64 * 1024 * 1024  # A second
BURST_SECONDS = 1.0  # Of these rates, which a follower may read at once after a pause


@dataclass(eq=False)
class FollowPace:
    """When each follower may read on, in seconds of a monotonic clock."""

    _due: dict[object, float] = field(default_factory=dict)

    def delay(self, reader: object, lines: int, size: int, *, now: float) -> float:
        """Note that a follower has read lines of `size` bytes; return how long it must wait.

        Followers that wait at the same time share the rate.
        """
        waiting = sum(due > now for other, due in self._due.items() if other is not reader)
        cost = max(lines / MOST_LINES, size / MOST_BYTES) * (1 + waiting)
        due = max(self._due.get(reader, 0.0), now - BURST_SECONDS) + cost
        self._due[reader] = due
        return max(0.0, due - now)

    def leave(self, reader: object) -> None:
        """Forget a follower."""
        self._due.pop(reader, None)
