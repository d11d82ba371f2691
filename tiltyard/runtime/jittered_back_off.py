"""Waits between tries."""

import asyncio
from dataclasses import dataclass, field
from random import Random

MIN_BACK_OFF = 0.1


def pause(failures: int, *, first: float, longest: float, random: Random) -> float:
    """Give the wait after so many failures: doubled each time, and shortened by chance."""
    wait = first * 2.0 ** min(failures - 1, 30)
    return min(longest, wait) * (0.5 + random.random() / 2)


@dataclass(slots=True)
class BackOff:
    """Waits that double from 0.1 s, each shortened by chance so that hosts do not march."""

    random: Random
    longest: float
    _failures: int = field(default=0)

    def reset(self) -> None:
        """Begin anew after a success."""
        self._failures = 0

    async def wait(self) -> None:
        """Wait, and longer the next time."""
        self._failures += 1
        first, longest = MIN_BACK_OFF, self.longest
        await asyncio.sleep(
            pause(self._failures, first=first, longest=longest, random=self.random)
        )
