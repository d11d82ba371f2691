"""Requests that wait for the attempt of a test message."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from controlplane.domain.errors import AccountBusyError, StoppingError

MOST = 4  # Tests of an account at a time
RETRY_AFTER = 5  # Seconds


class OpenTests:
    """The tests under way: a bounded number of each account, and none after `stop`."""

    def __init__(self) -> None:
        self._open: dict[asyncio.Timeout, str] = {}

    @asynccontextmanager
    async def opened(self, account: str) -> AsyncIterator[None]:
        """Test within.

        Raises:
            AccountBusyError: The account has too many tests under way.
            StoppingError: The control plane is shutting down.
        """
        if list(self._open.values()).count(account) >= MOST:
            raise AccountBusyError(retry_after=RETRY_AFTER)
        timeout = asyncio.timeout(None)
        try:
            async with timeout:
                self._open[timeout] = account
                yield
        except TimeoutError:
            raise StoppingError("the outcome of the attempt is unknown") from None
        finally:
            self._open.pop(timeout, None)

    def stop(self) -> None:
        """End all tests, so that endpoints that hang do not delay the shutdown."""
        now = asyncio.get_running_loop().time()
        for timeout in self._open:
            timeout.reschedule(now)
