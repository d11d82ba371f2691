"""The two clocks, injected so that tests own the time."""

import time
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Clock:
    """The wall clock for what people read, the monotonic one for every interval."""

    wall: Callable[[], float] = time.time
    monotonic: Callable[[], float] = time.monotonic

    def now_ms(self) -> int:
        """Return the wall time in whole milliseconds since the epoch."""
        return int(self.wall() * 1000)
