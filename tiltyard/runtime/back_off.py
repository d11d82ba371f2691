"""Exponential back-off."""

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


class BackOff:
    """Waits that double from `first` to `longest` seconds, with jitter from `random`."""

    def __init__(
        self,
        clock: Clock,
        random: Random | None = None,
        *,
        first: float = RETRY_FIRST_SECONDS,
        longest: float = RETRY_LONGEST_SECONDS,
    ) -> None:
        self._clock = clock
        self._random = random
        self._first = first
        self._longest = longest
        self._failures = 0

    def reset(self) -> None:
        """Return to the shortest wait, after a success."""
        self._failures = 0

    async def wait(self) -> None:
        """Wait, longer each time."""
        self._failures += 1
        await self._clock.sleep(
            pause(self._failures, first=self._first, longest=self._longest, random=self._random)
        )
