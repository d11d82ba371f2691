"""How many containers are started at once; more would only slow each of them down."""

from asyncio import timeout
from collections import deque

from agent.domain.errors import StartQueueFullError
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.fair_queue import FairSlots

WEIGHT = 0.2
"""Of the newest start in the mean time that a start takes."""


class StartSlots:
    """Owns the slots of a host, for which accounts queue."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self.slots = slots
        self._clock = clock
        self._taken = FairSlots(lambda: slots)
        self._began = deque[float]()
        self._mean: float | None = None

    async def acquire(self, account: str, within: float | None = None) -> None:
        """Take a slot, waiting for one up to `within` seconds.

        Raises:
            StartQueueFullError: None was free in time; at once, when by the starts so far none
                will be.
        """
        if not self._taken.take():
            if within is not None and self._expected_wait(account) > within:
                raise StartQueueFullError(self.slots)
            try:
                async with timeout(within):
                    await self._taken.wait(account)
            except TimeoutError:
                raise StartQueueFullError(self.slots) from None
        self._began.append(self._clock.monotonic())

    @property
    def used(self) -> int:
        """How many are taken."""
        return self._taken.used

    @property
    def waiting(self) -> int:
        """How many starts wait for one."""
        return len(self._taken.waiting)

    @property
    def has_spare(self) -> bool:
        """True while no player's start would miss a slot: none waits, and half stay free."""
        return not self.waiting and self.used < max(1, self.slots // 2)

    def take_spare(self) -> None:
        """Take a slot while one is spare."""
        taken = self._taken.take()
        assert taken, "a slot is spare"
        self._began.append(self._clock.monotonic())

    def release(self) -> None:
        """Give a slot back, to the next start in the queue."""
        took = self._clock.monotonic() - self._began.popleft()
        self._mean = took if self._mean is None else self._mean + WEIGHT * (took - self._mean)
        self._taken.release()

    def _expected_wait(self, account: str) -> float:
        """Estimate the seconds until one more start of an account would begin."""
        return (self._taken.waiting.ahead(account) + 1) * (self._mean or 0.0) / self.slots
