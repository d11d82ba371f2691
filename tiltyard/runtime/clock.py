"""The time, injected: tests bring a clock that they advance by hand."""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Protocol, overload

DUTY_CYCLE = 9.0
"""Duty cycle: the pause after some work is at least this multiple of its duration."""


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


@asynccontextmanager
async def timeout(seconds: float, clock: Clock) -> AsyncIterator[None]:
    """As `asyncio.timeout`, on an injected clock.

    Raises:
        TimeoutError: What runs within has not ended after `seconds`.
    """
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
    """Whole milliseconds of Unix time, as storage and wire have it.

    A float holds Unix time to the microsecond, so what `from_ms` returned comes out again.
    """
    return None if time is None else round(time * 1_000_000) // 1000


@overload
def from_ms(time: int) -> float: ...


@overload
def from_ms(time: int | None) -> float | None: ...


def from_ms(time: int | None) -> float | None:
    """Seconds of Unix time, which the rest of the program counts."""
    return None if time is None else time / 1000
