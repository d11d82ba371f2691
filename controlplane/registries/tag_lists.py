"""Lists of tags, newest version first: read from a registry once for all who ask at a time.

A caller goes through a list page by page, and every page needs all of it in order. So a list is
kept for a moment; calls while it is read share it. A failure is raised to those, and not kept.
"""

import asyncio
import re
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeAlias

from controlplane.domain.errors import TiltyardError
from controlplane.http.request_slots import release_slot
from controlplane.storage.tables.registries import Registry
from tiltyard.runtime.tasks import TaskOwner

KEPT_SECONDS = 10.0
"""Long enough for a caller to go through the pages, short enough to see what was pushed."""

MAX_KEPT = 32
"""Lists, of a few megabytes each at most."""

_NUMBERS = re.compile(r"0*([0-9]+)")
_Key: TypeAlias = tuple[Registry, str]


class TagLists:
    """Owns the tasks that read, the thread that sorts, and the lists that are kept."""

    def __init__(
        self,
        read: Callable[[Registry, str], Awaitable[Iterable[str]]],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._read = read
        self._now = now
        self._sorting = ThreadPoolExecutor(1, "tag lists")
        self._reading = TaskOwner[tuple[str, ...]](TiltyardError)
        self._kept: OrderedDict[_Key, tuple[tuple[str, ...], float]] = OrderedDict()

    async def newest_first(self, registry: Registry, repository: str) -> tuple[str, ...]:
        """Give a repository's tags; raises what reading them raised."""
        key = (registry, repository)
        tags, until = self._kept.get(key, ((), 0.0))
        if self._now() < until:
            return tags
        reading = self._reading.get(key)
        if reading is None:
            name = f"tags of {repository} in {registry.name}"
            reading = self._reading.start(self._read_and_keep(key), name, key=key)
        release_slot()  # the task leaves only that of the request which began it
        # Shielded: a caller that hangs up must not take the list away from the others.
        return await asyncio.shield(reading)

    async def close(self) -> None:
        """End the tasks. Idempotent."""
        await self._reading.close()
        self._sorting.shutdown(wait=False)  # a sort under way is short, and ends with its thread

    async def _read_and_keep(self, key: _Key) -> tuple[str, ...]:
        found = await self._read(*key)
        loop = asyncio.get_running_loop()
        tags = await loop.run_in_executor(self._sorting, _newest_first, found)
        self._keep(key, tags)
        return tags

    def _keep(self, key: _Key, tags: tuple[str, ...]) -> None:
        now = self._now()
        self._kept.pop(key, None)
        self._kept[key] = (tags, now + KEPT_SECONDS)
        oldest_first = list(self._kept.items())
        for old, (_, until) in oldest_first:
            if until <= now or len(self._kept) > MAX_KEPT:
                del self._kept[old]


def _newest_first(tags: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(tags, key=natural_order, reverse=True))


def natural_order(text: str) -> str:
    """Give a key that orders versions as people do: runs of digits as numbers. Pure.

    A number becomes a character below all others, its count of digits as one, and its digits. Keys
    that are strings compare in little time: Python lets no other thread run while it compares.
    """
    return _NUMBERS.sub(lambda run: f"\0{chr(len(run[1]))}{run[1]}", text)
