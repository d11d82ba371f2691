"""Cached tag lists, newest version first.

Each page of our API needs the whole sorted list, so lists are cached briefly, for all accounts.
Concurrent calls of an account share one read; those of another account do not, since the read may
wait for the account's share of the connections to the registry. Failures are raised to all calls
that share the read, and not cached.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from typing import TypeAlias

from controlplane.admission.request_slots import release_request_slot
from controlplane.domain.applications.registries import Registry
from controlplane.domain.errors import TiltyardError
from tiltyard.runtime.tasks import TaskOwner, Threads

KEPT_SECONDS = 10.0  # Long enough to page through a list, short enough to see new tags
MAX_KEPT = 32  # Cached lists of at most a few megabytes each

_NUMBERS = re.compile(r"0*([0-9]+)")
_Key: TypeAlias = tuple[Registry, str]


class TagLists:
    """Owns the reading tasks, the sorting thread and the cached lists."""

    def __init__(
        self,
        read: Callable[[Registry, str, str], Awaitable[Iterable[str]]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._now = now
        self._sorting = Threads(1, "tag lists")
        self._reading = TaskOwner[tuple[str, ...]](TiltyardError)
        self._cached: OrderedDict[_Key, tuple[tuple[str, ...], float]] = OrderedDict()

    async def newest_first(
        self, registry: Registry, repository: str, account: str
    ) -> tuple[str, ...]:
        """Return a repository's tags. Errors of `read` pass through.

        `account` is whose call it is: the first of its concurrent calls reads for the others.
        """
        key = (registry, repository)
        tags, until = self._cached.get(key, ((), 0.0))
        if self._now() < until:
            return tags
        of_account = (key, account)
        reading = self._reading.get(of_account)
        if reading is None:
            name = f"tags of {repository} in {registry.name}"
            work = self._read_and_cache(key, account)
            reading = self._reading.start(work, name, key=of_account)
        release_request_slot()  # the task releases only the slot of the request that started it
        # Shielded: a caller that disconnects must not cancel the read for the others.
        return await asyncio.shield(reading)

    async def close(self) -> None:
        """Cancel the tasks. Idempotent."""
        await self._reading.close()
        await self._sorting.close()

    async def _read_and_cache(self, key: _Key, account: str) -> tuple[str, ...]:
        found = await self._read(*key, account)
        tags = await self._sorting.run(_newest_first, found)
        now = self._now()
        self._cached.pop(key, None)
        self._cached[key] = (tags, now + KEPT_SECONDS)
        oldest_first = list(self._cached.items())
        for old, (_, until) in oldest_first:
            if until <= now or len(self._cached) > MAX_KEPT:
                del self._cached[old]
        return tags


def _newest_first(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(tags, key=natural_order, reverse=True))


def natural_order(text: str) -> str:
    """Return a sort key that compares runs of digits as numbers.

    A number becomes NUL, its digit count as one character, and its digits. String keys compare
    quickly; sorting holds the GIL.
    """
    return _NUMBERS.sub(lambda run: f"\0{chr(len(run[1]))}{run[1]}", text)
