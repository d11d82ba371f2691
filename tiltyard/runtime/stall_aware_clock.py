"""A monotonic clock that excludes stalls of this program.

While the event loop is stalled, host reports wait to be read: that is not downtime of a host.
"""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from tiltyard.runtime.clock import Clock

TICK = 1.0  # Seconds between two readings
LONGEST = 2.0  # Maximum seconds that count between two readings


class ListeningClock:
    """Counts the seconds in which this program could read host reports."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counted = 0.0
        self._looked_at = clock.monotonic()

    def now(self) -> float:
        """Return the seconds counted so far."""
        return self._counted + min(self._clock.monotonic() - self._looked_at, LONGEST)

    def look(self) -> None:
        """Count the time since the last reading."""
        self._counted = self.now()
        self._looked_at = self._clock.monotonic()

    async def run(self) -> None:
        """Count periodically until cancelled."""
        while True:
            self.look()
            await self._clock.sleep(TICK)


@asynccontextmanager
async def listening_timeout(seconds: float, listened: Callable[[], float]) -> AsyncIterator[None]:
    """Raise TimeoutError after `seconds` of the clock `listened`."""
    loop = asyncio.get_running_loop()
    until = listened() + seconds
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
