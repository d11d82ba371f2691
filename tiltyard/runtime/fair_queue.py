"""A queue that is fair between accounts, and slots that such a queue assigns.

Round robin over accounts, first in first out within one: a burst of one account delays another
account's item by one item only.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Generic, TypeVar

from tiltyard.runtime.fair_share import exceeds_share

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

    def has(self, account: str) -> bool:
        """Return whether an account has items in the queue."""
        return account in self._by_account

    def count(self, account: str) -> int:
        """Return the number of items of an account."""
        return len(self._by_account.get(account, ()))

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
                self._serve(account, item)
                return item
        return None

    def pop_first(self, serves: Callable[[str], bool]) -> tuple[str, T] | None:
        """Remove and return the first item of the first account that is served, with the account.

        The account then comes last.
        """
        account = next(filter(serves, self._by_account), None)
        if account is None:
            return None
        item = self._by_account[account][0]
        self._serve(account, item)
        return account, item

    def _serve(self, account: str, item: T) -> None:
        self.remove(account, item)
        if account in self._by_account:
            self._by_account[account] = self._by_account.pop(account)

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
    """A semaphore with a fair queue, of which one account holds at most its share."""

    def __init__(self, limit: Callable[[], int], *, is_shared: bool = True) -> None:
        """`limit` is evaluated whenever a slot is taken or released.

        `is_shared`: False if all slots belong to one account, which may then hold all of them.
        """
        self._limit = limit
        self._is_shared = is_shared
        self._held: dict[str, int] = {}
        self.used = 0
        self.waiting = FairQueue[asyncio.Future[None]]()

    def held(self, account: str) -> int:
        """Return the number of slots that an account holds."""
        return self._held.get(account, 0)

    def take(self, account: str = "") -> bool:
        """Take a slot, unless the account must wait for one."""
        if self.must_wait(account):
            return False
        self._give(account)
        return True

    def must_wait(self, account: str) -> bool:
        """Return whether an account gets no slot now, or others of its own wait for one."""
        return self.waiting.has(account) or not self.may_hold(account)

    @contextlib.asynccontextmanager
    async def hold(self, account: str) -> AsyncIterator[None]:
        """Wait for a slot and hold it."""
        if not self.take(account):
            await self.wait(account)
        try:
            yield
        finally:
            self.release(account)

    def may_hold(self, account: str, more: int = 1) -> bool:
        """Return whether `more` slots are free and within the share of an account."""
        held = self.held(account) if self._is_shared else 0
        return not exceeds_share(held, more, self.used, self._limit())

    async def wait(self, account: str = "") -> None:
        """Wait for a slot."""
        given: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.waiting.put(account, given)
        try:
            await given
        except asyncio.CancelledError:
            if given.cancelled():
                self.waiting.remove(account, given)
            else:  # the slot was given in this step of the event loop
                self.release(account)
            raise

    def release(self, account: str = "") -> None:
        """Release a slot; free slots are assigned to the queue at once."""
        self.used -= 1
        self._held[account] -= 1
        if not self._held[account]:
            del self._held[account]
        while (first := self.waiting.pop_first(self.may_hold)) is not None:
            waiter, given = first
            if not given.done():
                given.set_result(None)
                self._give(waiter)

    def _give(self, account: str) -> None:
        self.used += 1
        self._held[account] = self.held(account) + 1
