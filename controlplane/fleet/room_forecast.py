"""An estimate of when a full region and node pool has room again, by the pace of ends there.

Pure, time as an argument. A host that joins makes room earlier; a session that is larger than the
one that ended finds room later.
"""

import math
from dataclasses import dataclass

RETRY_AFTER = 5
"""Seconds after which another try is worth it where nothing is known: hosts report every 2 s."""

MAX_RETRY_AFTER = 60
"""Seconds at most: hosts join, and sessions end at any time."""

WEIGHT = 0.2
"""Of the newest interval between two ends in their pace."""


@dataclass(slots=True)
class RoomForecast:
    """The pace of ends in one place. Each caller that is refused is given an end of its own."""

    pace: float | None = None
    """Seconds between two ends; None before there were two."""
    _last: float | None = None
    _refused: int = 0
    """Callers that were given an end which has not come yet."""

    def note_ends(self, count: int, now: float) -> None:
        """Count sessions that ended since the last call."""
        if self._last is not None:
            interval = (now - self._last) / count
            old = interval if self.pace is None else self.pace
            self.pace = interval + (old - interval) * (1 - WEIGHT) ** count
        self._last = now
        self._refused = max(0, self._refused - count)

    def retry_after(self, now: float) -> int:
        """Return after how many seconds a caller that finds no room should try again."""
        if self.pace is None or self._last is None:
            return RETRY_AFTER
        # While nothing ends, the pace is no faster than that.
        wait = math.ceil(max(self.pace, now - self._last) * (self._refused + 1))
        if wait < MAX_RETRY_AFTER:
            self._refused += 1
        return min(max(1, wait), MAX_RETRY_AFTER)
