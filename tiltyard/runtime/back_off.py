"""Exponential back-off."""

from dataclasses import KW_ONLY, dataclass, field
from random import Random

from tiltyard.runtime.clock import Clock

RETRY_FIRST_SECONDS = 0.5
RETRY_LONGEST_SECONDS = 30.0


def pause(
    failures: int,
    *,
    first: float = RETRY_FIRST_SECONDS,
    longest: float = RETRY_LONGEST_SECONDS,
    random: Random | None = None,
) -> float:
    """Return the seconds to wait after this number of failures: doubled each time.

    With `random`, shortened by up to a half as jitter.
    """
    wait = min(longest, first * 2.0 ** min(failures - 1, 30))
    return wait if random is None else wait * (0.5 + random.random() / 2)


@dataclass(eq=False)
class BackOff:
    """Waits that double from `first` to `longest` seconds, with jitter from `random`."""

    clock: Clock
    random: Random | None = None
    _: KW_ONLY
    first: float = RETRY_FIRST_SECONDS
    longest: float = RETRY_LONGEST_SECONDS
    _failures: int = field(default=0, init=False)

    def reset(self) -> None:
        """Return to the shortest wait, after a success."""
        self._failures = 0

    async def wait(self) -> None:
        """Wait, longer each time."""
        self._failures += 1
        await self.clock.sleep(
            pause(self._failures, first=self.first, longest=self.longest, random=self.random)
        )
