"""When a full region and node pool has room again, judged by the pace at which sessions end there.

Pure, time as an argument. It is an estimate: who comes then may still find a session of another
size in the place that got free, and a host that joins makes room earlier.
"""

import math
from dataclasses import dataclass

RETRY_AFTER = 5
"""Seconds after which another try is worth it where nothing is known: hosts report every 2 s."""

LONGEST = 60
"""Seconds that nobody is sent away for longer: hosts join, and what runs ends when it likes."""

WEIGHT = 0.2
"""Of the newest interval between two ends in their pace."""


@dataclass(slots=True)
class RoomForecast:
    """The ends of sessions in one place, and who was told to come back for the room they leave.

    Each who is sent away is given the next end that nobody else waits for, so that a thousand
    callers do not all come back for the first.
    """

    pace: float | None = None
    """Seconds between two ends; None before there were two."""
    _last: float | None = None
    _booked: float = 0.0
    """When the last end is expected that somebody was told to come back for."""

    def note_ends(self, count: int, now: float) -> None:
        """Take in that so many sessions ended since the last call."""
        if self._last is not None:
            interval = (now - self._last) / count
            old = interval if self.pace is None else self.pace
            self.pace = interval + (old - interval) * (1 - WEIGHT) ** count
        self._last = now

    def retry_after(self, now: float) -> int:
        """Give one who finds no room the seconds until it is worth another try."""
        if self.pace is None or self._last is None:
            return RETRY_AFTER
        # While nothing ends, the pace is no faster than that.
        at = max(now, self._booked) + max(self.pace, now - self._last)
        if at - now >= LONGEST:
            return LONGEST
        self._booked = at
        return max(1, math.ceil(at - now))
