"""The time, injected: tests bring a clock that they advance by hand."""

import asyncio
import time
from typing import Protocol

DUTY_CYCLE = 9.0
"""After some work, wait at least so many times as long as it took before the next of its kind."""


def rest_after(took: float, longest: float) -> float:
    """Seconds to leave the loop to others after work that went over all that lives.

    A busy host changes a hundred times a second, each a cause for it. Never more than `longest`:
    it may have been the machine that stood still.
    """
    return min(DUTY_CYCLE * took, longest)


class Clock(Protocol):
    """Wall time for people, monotonic time for intervals."""

    def time(self) -> float:
        """Seconds of Unix time; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; not counted while the machine sleeps."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for an interval."""
        ...


class SystemClock:
    """The machine's clock."""

    def time(self) -> float:
        """Seconds of Unix time."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock."""
        await asyncio.sleep(seconds)


def unix_ms(clock: Clock) -> int:
    """Whole milliseconds of Unix time, as storage and wire have it."""
    return int(clock.time() * 1000)
