"""The waits between tries of what must happen in the end."""

from tiltyard.runtime.clock import Clock

RETRY_FIRST_SECONDS = 0.5
RETRY_LONGEST_SECONDS = 30.0


class BackOff:
    """Waits that double from RETRY_FIRST_SECONDS to RETRY_LONGEST_SECONDS."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._next = RETRY_FIRST_SECONDS

    def reset(self) -> None:
        """Begin anew after a success."""
        self._next = RETRY_FIRST_SECONDS

    async def wait(self) -> None:
        """Wait, and longer the next time."""
        await self._clock.sleep(self._next)
        self._next = min(self._next * 2, RETRY_LONGEST_SECONDS)
