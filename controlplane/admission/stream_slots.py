"""Streams of events that are open at a time; each account has a share, and each token a limit."""

import asyncio
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.domain.errors import TooManyStreamsError
from tiltyard.runtime.fair_share import exceeds_share

RETRY_AFTER = 5  # Seconds


class StreamSlots:
    """Counts the open streams of each account, "" for operators, and of each token."""

    def __init__(self, total: int, per_token: int) -> None:
        self._total = total
        self._per_token = per_token
        self._of_accounts = Counter[str]()
        self._of_tokens = Counter[str]()
        self.taken = 0
        self._all_free = asyncio.Event()
        self._all_free.set()

    @contextmanager
    def held(self, account: str, token_id: str) -> Iterator[None]:
        """Hold a slot.

        Raises:
            TooManyStreamsError: The token, or the account, has too many of them.
        """
        if self._of_tokens[token_id] >= self._per_token:
            raise TooManyStreamsError("token", RETRY_AFTER)
        if exceeds_share(self._of_accounts[account], 1, self.taken, self._total):
            raise TooManyStreamsError("account", RETRY_AFTER)
        self._count(account, token_id, 1)
        try:
            yield
        finally:
            self._count(account, token_id, -1)

    async def all_released(self) -> None:
        """Wait until no stream is open."""
        await self._all_free.wait()

    def _count(self, account: str, token_id: str, change: int) -> None:
        self.taken += change
        for counted, key in ((self._of_accounts, account), (self._of_tokens, token_id)):
            counted[key] += change
            if not counted[key]:
                del counted[key]
        if self.taken:
            self._all_free.clear()
        else:
            self._all_free.set()
