"""A line in which accounts take turns. Pure.

The account that was served the longest ago is next; of one account, who came first. So a storm of
starts of one account delays a start of another by one turn of everybody, not by the storm.
"""

from collections import deque
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

T = TypeVar("T")


class FairLine(Generic[T]):
    """What waits, by account; what is equal to something else in the line must be the same."""

    def __init__(self) -> None:
        self._by_account: dict[str, deque[T]] = {}  # in the order of their turns
        self._length = 0

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[T]:
        """Give all in the order in which they would be served."""
        rows = [iter(waiting) for waiting in self._by_account.values()]
        while rows:
            left = []
            for row in rows:
                for one in row:
                    yield one
                    left.append(row)
                    break
            rows = left

    def join(self, account: str, one: T) -> None:
        """Put one at the end of its account's own line."""
        self._by_account.setdefault(account, deque()).append(one)
        self._length += 1

    def leave(self, account: str, one: T) -> bool:
        """Take one out; False when it is not in the line."""
        waiting = self._by_account.get(account)
        if waiting is None or one not in waiting:
            return False
        waiting.remove(one)
        self._length -= 1
        if not waiting:
            del self._by_account[account]
        return True

    def serve(self, account: str, one: T) -> bool:
        """Take one out whose turn it was: all other accounts come before its own again."""
        was_in = self.leave(account, one)
        waiting = self._by_account.pop(account, None)
        if waiting is not None:
            self._by_account[account] = waiting
        return was_in

    def pop(self) -> T:
        """Take out the first of the account whose turn it is, as `serve` does.

        Raises:
            LookupError: The line is empty.
        """
        for account, waiting in self._by_account.items():
            one = waiting[0]
            self.serve(account, one)
            return one
        raise LookupError("the line is empty")

    def first(self, fits: Callable[[T], bool]) -> T | None:
        """Give the first that fits, None when none does."""
        return next((one for one in self if fits(one)), None)

    def ahead(self, account: str) -> int:
        """Tell how many would be served before one that joins now, if nobody came after it."""
        own = len(self._by_account.get(account, ()))
        return own + sum(
            min(len(waiting), own + 1)
            for other, waiting in self._by_account.items()
            if other != account
        )
