"""How many containers are started at once, and whose turn it is.

More at once would only make each of them slower. Accounts take turns: the one that was
served the longest ago is next, and of one account who came first, so that a storm of starts of one
delays another's by one turn.
"""

import asyncio
from asyncio import timeout
from collections import Counter
from dataclasses import dataclass, field

from agent.domain.errors import StartQueueFull
from tiltyard.runtime.clock import Clock

WEIGHT = 0.2
"""Of the newest start in the mean time that a start takes."""


@dataclass(slots=True, eq=False)
class _Waiting:
    account: str
    turn: asyncio.Future[None] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )


class StartSlots:
    """Owns the slots of a host."""

    def __init__(self, slots: int, clock: Clock) -> None:
        self.slots = slots
        self._clock = clock
        self._began: list[float] = []
        self._waiting: list[_Waiting] = []
        self._turns: list[str] = []
        """Accounts that were served while others waited, the newest last."""
        self._mean: float | None = None

    async def acquire(self, account: str, within: float | None = None) -> None:
        """Take a slot, waiting for one so many seconds at most.

        Raises StartQueueFull: at once, when by the starts so far it would not be had in time.
        """
        if len(self._began) < self.slots and all(each.turn.done() for each in self._waiting):
            self._began.append(self._clock.monotonic())
            return
        if within is not None and self._expected_wait(account) > within:
            raise StartQueueFull(self.slots)
        waiting = _Waiting(account)
        self._waiting.append(waiting)
        try:
            async with timeout(within):
                await waiting.turn
        except BaseException as error:
            if waiting in self._waiting:
                self._waiting.remove(waiting)
            else:
                self.release()  # its turn had just come
            if isinstance(error, TimeoutError):
                raise StartQueueFull(self.slots) from None
            raise
        finally:
            if not self._waiting:
                self._turns.clear()

    @property
    def used(self) -> int:
        """How many are taken."""
        return len(self._began)

    @property
    def waiting(self) -> int:
        """How many wait for one."""
        return len(self._waiting)

    @property
    def has_spare(self) -> bool:
        """True while no player would miss a slot: nobody waits, and half of them stay free."""
        return not self._waiting and len(self._began) < max(1, self.slots // 2)

    def take_spare(self) -> None:
        """Take a slot that is to spare."""
        self._began.append(self._clock.monotonic())

    def release(self) -> None:
        """Give a slot back, to whose turn it is."""
        now = self._clock.monotonic()
        took = now - self._began.pop(0)
        self._mean = took if self._mean is None else self._mean + WEIGHT * (took - self._mean)
        self._let_in(now)

    def _let_in(self, now: float) -> None:
        """Give what is free to those whose turn it is."""
        while len(self._began) < self.slots:
            served = {account: turn for turn, account in enumerate(self._turns, start=1)}
            waiting = [each for each in self._waiting if not each.turn.done()]  # some just gave up
            following = min(waiting, key=lambda each: served.get(each.account, 0), default=None)
            if following is None:
                return
            self._waiting.remove(following)
            self._turns = [each for each in self._turns if each != following.account]
            self._turns.append(following.account)
            self._began.append(now)
            following.turn.set_result(None)

    def _expected_wait(self, account: str) -> float:
        """Estimate the seconds until one more of an account would have its turn."""
        waiting = Counter(each.account for each in self._waiting)
        own = waiting.pop(account, 0)
        ahead = own + sum(min(others, own + 1) for others in waiting.values())
        return (ahead + 1) * (self._mean or 0.0) / self.slots
