"""DNS lookups of webhooks, whose names are chosen by accounts."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from aiohttp.abc import AbstractResolver, ResolveResult

from controlplane.domain.addresses import Network
from controlplane.domain.webhooks.targets import is_allowed
from controlplane.registries.resolver import Addresses, look_up, resolved
from tiltyard.runtime.fair_queue import FairSlots

THREADS = 32
"""A lookup cannot be cancelled: it holds its thread, and a slot of its account, to its end."""


class ForbiddenAddressError(OSError):
    """A name has an address that webhooks may not connect to."""


class LookUps:
    """Runs lookups on threads, of which an account has a share."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS, "webhook names")
        self._slots = FairSlots(lambda: THREADS)

    async def addresses(self, account: str, host: str) -> Addresses:
        """Look up a name for an account. Raises as `socket.getaddrinfo`."""
        if not self._slots.take(account):
            await self._slots.wait(account)
        loop = asyncio.get_running_loop()
        try:
            found = loop.run_in_executor(self._threads, look_up, host)
        except RuntimeError:
            self._slots.release(account)
            raise
        found.add_done_callback(partial(self._ended, account))
        return await asyncio.shield(found)

    def close(self) -> None:
        """Abandon the lookups. Idempotent."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def _ended(self, account: str, found: "asyncio.Future[Any]") -> None:
        self._slots.release(account)
        if not found.cancelled():
            found.exception()  # Its attempt may be over: then asyncio would log it as lost


class CheckedResolver(AbstractResolver):
    """Resolves the name of one attempt, and returns its addresses only if all are allowed.

    The connection is made to one of these addresses, without a second lookup.
    """

    def __init__(self, look_ups: LookUps, account: str, networks: Sequence[Network]) -> None:
        self._look_ups = look_ups
        self._account = account
        self._networks = networks

    async def resolve(self, host: str, port: int = 0, family: Any = 0) -> list[ResolveResult]:
        """Resolve a name.

        Raises:
            ForbiddenAddressError: An address is not allowed.
            OSError: There is no such name, or it cannot be looked up.
        """
        found = await self._look_ups.addresses(self._account, host)
        if not all(is_allowed(address, self._networks) for _, _, address in found):
            raise ForbiddenAddressError
        return resolved(host, port, found)

    async def close(self) -> None:
        """Do nothing: `LookUps` owns the threads."""
