"""A monotonic clock that stands still while this program does.

When the event loop was stalled, reports of hosts wait to be read: that time is no host's downtime.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tiltyard.runtime.clock import Clock

TICK = 1.0
"""Seconds between two looks."""

LONGEST = 2.0
"""Seconds that count of what passes between two looks."""


class ListeningClock:
    """Counts the seconds in which this program listened."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted = 0.0
        self._looked_at = clock.monotonic()

    def now(self) -> float:
        """Return for how many seconds this program has listened."""
        return self._counted + min(self._clock.monotonic() - self._looked_at, LONGEST)

    def look(self) -> None:
        """Count what has passed."""
        self._counted, self._looked_at = self.now(), self._clock.monotonic()

    async def run(self) -> None:
        """Look again and again until cancelled."""
        while True:
            self.look()
            await self._clock.sleep(TICK)


@asynccontextmanager
async def listening_timeout(seconds: float, listened: Callable[[], float]) -> AsyncIterator[None]:
    """Raise TimeoutError after `seconds` in which this program `listened`."""
    loop, until = asyncio.get_running_loop(), listened() + seconds
    timer: asyncio.TimerHandle

    def look() -> None:
        nonlocal timer
        rest = until - listened()
        if rest > 0:
            timer = loop.call_later(rest, look)
        else:
            limit.reschedule(loop.time())

    async with asyncio.timeout(None) as limit:
        timer = loop.call_later(seconds, look)
        try:
            yield
        finally:
            timer.cancel()
