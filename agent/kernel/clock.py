"""The machine's clocks."""

import asyncio
from pathlib import Path

from tiltyard.runtime.clock import SystemClock

SUSPEND_CHECK_SECONDS = 1.0
"""Check interval: timers run on CLOCK_MONOTONIC, which stops while a machine is suspended."""


class SystemHostClock(SystemClock):
    """Implements `agent.domain.clock.HostClock`."""

    def __init__(self) -> None:
        self.boot_id = Path("/proc/sys/kernel/random/boot_id").read_text("ascii").strip()
        """The kernel's random id of this boot."""

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait in short steps, so that waking from a suspend is noticed."""
        while (rest := deadline - self.boottime()) > 0:  # noqa: ASYNC110 - no event says so
            await asyncio.sleep(min(rest, SUSPEND_CHECK_SECONDS))
