"""A queue that is fair between accounts, and slots that such a queue assigns.

Round robin over accounts, first in first out within one: a burst of one account delays another
account's item by one item only.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by account. Items of one account must be distinct."""

    def __init__(self) -> None:
        self._by_account: dict[str, deque[T]] = {}  # in the order of service
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate in the order of service."""
        return (item for _, item in self._in_order())

    def put(self, account: str, item: T) -> None:
        """Add an item behind those of its account."""
        self._by_account.setdefault(account, deque()).append(item)
        self._length += 1

    def remove(self, account: str, item: T) -> bool:
        """Remove an item; False if it is not in the queue."""
        waiting = self._by_account.get(account)
        if waiting is None or item not in waiting:
            return False
        waiting.remove(item)
        self._length -= 1
        if not waiting:
            del self._by_account[account]
        return True

    def pop(self, fits: Callable[[T], bool] = lambda _: True) -> T | None:
        """Remove and return the first item that fits; its account then comes last."""
        for account, item in self._in_order():
            if fits(item):
                self.remove(account, item)
                if account in self._by_account:
                    self._by_account[account] = self._by_account.pop(account)
                return item
        return None

    def _in_order(self) -> Iterator[tuple[str, T]]:
        rows = [(account, iter(each)) for account, each in self._by_account.items()]
        while rows:
            left = []
            for account, row in rows:
                for item in row:
                    yield account, item
                    left.append((account, row))
                    break
            rows = left


class FairSlots:
    """A semaphore with a fair queue."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """`limit` is evaluated whenever a slot is taken or released."""
        self._limit = limit
        self.used = 0
        self.waiting = FairQueue[asyncio.Future[None]]()

    def take(self) -> bool:
        """Take a slot if one is free and the queue is empty."""
        if self.waiting or self.used >= self._limit():
            return False
        self.used += 1
        return True

    def queue(self, account: str = "") -> "asyncio.Future[None]":
        """Return a future that resolves when it is given a slot; cancelled ones get none."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.put(account, given)
        return given

    async def wait(self, account: str = "") -> None:
        """Wait for a slot."""
        given = self.queue(account)
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self.waiting.remove(account, given)
            else:  # the slot was given in this step of the event loop
                self.release()
            raise

    def release(self) -> None:
        """Release a slot; free slots are assigned to the queue at once."""
        self.used -= 1
        while self.waiting and self.used < self._limit():
            given = self.waiting.pop()
            if given is not None and not given.done():
                given.set_result(None)
                self.used += 1
