"""The machine's clocks."""

import asyncio
import ctypes
import os
import time
from pathlib import Path

from tiltyard.runtime.clock import SystemClock

_UNSYNCHRONISED = 0x0040  # STA_UNSYNC of adjtimex(2)

SUSPEND_CHECK_SECONDS = 1.0
"""Check interval: timers run on CLOCK_MONOTONIC, which stops while a machine is suspended."""


class SystemHostClock(SystemClock):
    """Implements `agent.domain.clock.HostClock`."""

    def __init__(self) -> None:
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        """The kernel's random id of this boot."""

    def boottime(self) -> float:
        """Seconds of CLOCK_BOOTTIME."""
        return time.clock_gettime(time.CLOCK_BOOTTIME)

    def is_synchronised(self) -> bool:
        """The result of adjtimex(2); False if the call fails."""
        try:
            return kernel_is_synchronised()
        except OSError:
            return False

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait in short steps, so that waking from a suspend is noticed."""
        while (rest := deadline - self.boottime()) > 0:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(min(rest, SUSPEND_CHECK_SECONDS))


class _Timex(ctypes.Structure):
    """The beginning of `struct timex`; with `modes` 0 the kernel only fills it in."""

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
    """Return whether the kernel counts the wall clock as synchronised; may raise OSError."""
    timex = _Timex()
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.adjtimex(ctypes.byref(timex)) < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return not timex.status & _UNSYNCHRONISED
