"""Clocks of a host for lifetimes that span reboots."""

from typing import Protocol

from tiltyard.runtime.clock import Clock


class HostClock(Clock, Protocol):
    """Wall time for people and reboots, boot time for lifetimes, monotonic time for intervals."""

    @property
    def boot_id(self) -> str:
        """A unique id of the current boot."""
        ...

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait until boot time reaches `deadline`; time in suspend counts."""
        ...
