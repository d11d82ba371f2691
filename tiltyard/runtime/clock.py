"""The time, injected: tests bring a clock that they turn by hand."""

import asyncio
import ctypes
import os
import time
from pathlib import Path
from typing import Protocol

_UNSYNCHRONISED = 0x0040
"""STA_UNSYNC of adjtimex(2)."""

SUSPEND_CHECK_SECONDS = 1.0
"""Timers run on CLOCK_MONOTONIC, which stands still while a machine sleeps: look this often."""


REST = 9.0
"""At least so many times as long as some work took, the next of its kind waits."""


def rest_after(took: float, longest: float) -> float:
    """Seconds to leave the loop to others after work that went over all that lives.

    A busy host changes a hundred times a second, each a cause for it. Never more than `longest`:
    it may have been the machine that stood still.
    """
    return min(REST * took, longest)


class Clock(Protocol):
    """Wall time for people and reboots, boot time for lifetimes, monotonic time for intervals."""

    def time(self) -> float:
        """Seconds of Unix time; may jump."""
        ...

    def monotonic(self) -> float:
        """Seconds that never jump; not counted while the machine sleeps."""
        ...

    def boottime(self) -> float:
        """Seconds since boot, time asleep included; never jumps."""
        ...

    @property
    def boot_id(self) -> str:
        """Tells one boot of the machine from another."""
        ...

    def is_synchronised(self) -> bool:
        """True when something keeps the wall clock right; False also when that is unknown."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait for an interval."""
        ...

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait until boot time has reached `deadline`, a suspended machine included."""
        ...


class SystemClock:
    """The machine's clocks."""

    def __init__(self) -> None:
        self._boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()

    def time(self) -> float:
        """Seconds of Unix time."""
        return time.time()

    def monotonic(self) -> float:
        """Seconds of CLOCK_MONOTONIC."""
        return time.monotonic()

    def boottime(self) -> float:
        """Seconds of CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    @property
    def boot_id(self) -> str:
        """The kernel's random id of this boot."""
        return self._boot_id

    def is_synchronised(self) -> bool:
        """What adjtimex(2) says; False where it may not be called."""
        try:
            return kernel_is_synchronised()
        except OSError:
            return False

    async def sleep(self, seconds: float) -> None:
        """Wait on the event loop's clock."""
        await asyncio.sleep(seconds)

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait in short steps, so that waking from a suspend is noticed."""
        while (rest := deadline - self.boottime()) > 0:  # noqa: ASYNC110 - no event tells of it
            await asyncio.sleep(min(rest, SUSPEND_CHECK_SECONDS))


class _Timex(ctypes.Structure):
    """The begin of `struct timex`; with `modes` 0 the kernel only fills it in."""

    _fields_ = (
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("frequency", ctypes.c_long),
        ("largest_error", ctypes.c_long),
        ("estimated_error", ctypes.c_long),
        ("status", ctypes.c_int),
        ("rest", ctypes.c_byte * 256),
    )


def kernel_is_synchronised() -> bool:
    """Return whether the kernel counts the wall clock as synchronised; OSError if it is unknown.

    Reads only, so it needs no privilege but the system call itself.
    """
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return not timex.status & _UNSYNCHRONISED
