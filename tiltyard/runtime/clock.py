"""Injectable clocks: tests use one that they advance by hand."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, overload

from tiltyard.runtime.kernel_clock import kernel_is_synchronised

HELD_SECONDS = 600.0
"""Longest time after boot that anything waits for a synchronised wall clock."""

DUTY_CYCLE = 9.0  # Ratio of pause to work: 9 limits periodic work to 10 % of the event loop


def rest_after(took: float, longest: float) -> float:
    """Return the pause in seconds after work over all sessions that every change can trigger.

    At most `longest`, since the machine may have stalled during the work.
    """
    return min(DUTY_CYCLE * took, longest)


class Clock(Protocol):
    """Wall time for display, monotonic time for intervals."""

    def time(self) -> float:
        """Unix time in seconds; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; stopped while the machine is suspended."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, including suspend; never jumps."""
        ...

    def is_synchronised(self) -> bool:
        """True if the wall clock is synchronised; False if unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for an interval."""
        ...


class SystemClock:
    """The system clock."""

    def time(self) -> float:
        """Unix time in seconds."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds of CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def is_synchronised(self) -> bool:
        """The result of adjtimex(2); False if the call fails."""
        try:
            return kernel_is_synchronised()
        except OSError:
            return False

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock."""
        await asyncio.sleep(seconds)


def is_trusted(clock: Clock) -> bool:
    """Return whether to rely on the wall clock, which may be wrong for a while after boot."""
    return clock.boottime() >= HELD_SECONDS or clock.is_synchronised()


@asynccontextmanager
async def timeout(seconds: float, clock: Clock) -> AsyncIterator[None]:
    """Like `asyncio.timeout`, on an injected clock."""
    async with asyncio.timeout(None) as limit:

        async def expire() -> None:
            await clock.sleep(seconds)
            limit.reschedule(asyncio.get_running_loop().time())

        expiry = asyncio.create_task(expire(), name="timeout")
        try:
            yield
        finally:
            expiry.cancel()


@overload
def to_ms(time: float) -> int: ...


@overload
def to_ms(time: float | None) -> int | None: ...


def to_ms(time: float | None) -> int | None:
    """Convert Unix time to the whole milliseconds of storage and wire. Inverse of `from_ms`."""
    # A float holds Unix time to the microsecond.
    return None if time is None else round(time * 1_000_000) // 1000


@overload
def from_ms(time: int) -> float: ...


@overload
def from_ms(time: int | None) -> float | None: ...


def from_ms(time: int | None) -> float | None:
    """Convert milliseconds of Unix time to seconds."""
    return None if time is None else time / 1000
