"""The clocks of a host, which outlive a reboot: what lifetimes are counted by."""

from typing import Protocol

from tiltyard.runtime.clock import Clock


class HostClock(Clock, Protocol):
    """Wall time for people and reboots, boot time for lifetimes, monotonic time for intervals."""

    def boottime(self) -> float:
        """Seconds since boot, time asleep included; never jumps."""
        ...

    @property
    def boot_id(self) -> str:
        """Differs from one boot of the machine to the next."""
        ...

    def is_synchronised(self) -> bool:
        """True when something keeps the wall clock right; False also when that is unknown."""
        ...

    async def sleep_until_boottime(self, deadline: float) -> None:
        """Wait until boot time has reached `deadline`, a suspended machine included."""
        ...
