"""A queue that is fair between accounts, and slots that are given out by such a queue.

The account that was served longest ago is next; within an account, the order is that of arrival.
A storm of one account delays another by one item of each account, not by the whole storm.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairQueue(Generic[T]):
    """Items by account. Pure; an item must not equal another one of its account."""

    def __init__(self) -> None:
        self._by_account: dict[str, deque[T]] = {}  # in the order in which accounts are served
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Iterate in the order in which items would be served."""
        return (item for _, item in self._in_order())

    def put(self, account: str, item: T) -> None:
        """Add an item as its account's last."""
        self._by_account.setdefault(account, deque()).append(item)
        self._length += 1

    def remove(self, account: str, item: T) -> bool:
        """Take out an item that gives up its place; False when it is not in the queue."""
        waiting = self._by_account.get(account)
        if waiting is None or item not in waiting:
            return False
        waiting.remove(item)
        self._length -= 1
        if not waiting:
            del self._by_account[account]
        return True

    def pop(self, fits: Callable[[T], bool] = lambda _: True) -> T | None:
        """Serve the first item that fits; its account comes after all others then."""
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
    """A limited number of slots, each held by one piece of work."""

    def __init__(self, limit: Callable[[], int]) -> None:
        """Ask for the `limit` whenever a slot is taken or released."""
        self._limit = limit
        self.used = 0
        self.waiting = FairQueue[asyncio.Future[None]]()

    def take(self) -> bool:
        """Take a slot if one is free and nothing waits for it."""
        if self.waiting or self.used >= self._limit():
            return False
        self.used += 1
        return True

    async def wait(self, account: str = "") -> None:
        """Wait for a slot."""
        given = asyncio.get_running_loop().create_future()
        self.waiting.put(account, given)
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self.waiting.remove(account, given)
            else:  # the slot was given in this step of the event loop
                self.release()
            raise

    def release(self) -> None:
        """Give a slot back; what is free goes to those that wait, in the same step."""
        self.used -= 1
        while self.waiting and self.used < self._limit():
            given = self.waiting.pop()
            if given is not None and not given.done():
                given.set_result(None)
                self.used += 1
