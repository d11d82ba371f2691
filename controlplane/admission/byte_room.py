"""Bytes that the API holds in memory for callers, of which each account has a share.

One room counts request bodies, from their first bytes until the work on them has ended, another
responses that wait for their readers. Connections are limited by number, but each may hold a
mebibyte.
"""

import collections

from tiltyard.runtime.fair_share import exceeds_share
from tiltyard.runtime.metrics.instruments import Counter

BODIES_BYTES = 64 * 1024 * 1024  # Of bodies in all; an account alone may hold half
RESPONSES_BYTES = 128 * 1024 * 1024  # Of responses that wait for their readers in all
UNCOUNTED = 4096  # Bytes of a body that are not counted: the number of requests bounds these


class HeldBytes:
    """Bytes that one account holds until they are released."""

    __slots__ = ("_account", "_room", "_size")

    def __init__(self, room: "ByteRoom", account: str | None) -> None:
        self._room = room
        self._account = account
        self._size = 0

    def grow(self, size: int) -> bool:
        """Hold at least `size` bytes; False, unchanged, if that exceeds the account's share."""
        if size > self._size:
            if not self._room.take(self._account, size - self._size):
                return False
            self._size = size
        return True

    def release(self) -> None:
        """Give the bytes back. Idempotent."""
        self._room.give(self._account, self._size)
        self._size = 0


class ByteRoom:
    """A number of bytes that is shared fairly; None is the account of callers without a token."""

    def __init__(self, total: int, refused: Counter | None = None) -> None:
        self._total = total
        self._refused = refused
        self._by_account = collections.Counter[str | None]()
        self.taken = 0

    def hold(self, account: str | None) -> HeldBytes:
        """Begin to hold bytes of an account: none yet."""
        return HeldBytes(self, account)

    def take(self, account: str | None, size: int) -> bool:
        """Count bytes of an account; False if that exceeds its share."""
        if exceeds_share(self._by_account[account], size, self.taken, self._total):
            if self._refused is not None:
                self._refused.inc()
            return False
        self._by_account[account] += size
        self.taken += size
        return True

    def give(self, account: str | None, size: int) -> None:
        """Undo a `take`."""
        self.taken -= size
        self._by_account[account] -= size
        if not self._by_account[account]:
            del self._by_account[account]
