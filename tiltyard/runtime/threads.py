"""Blocking work on threads of its owner."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads:
    """A pool of threads; a cancelled wait does not cut their work off."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, name)
        self._under_way: set[asyncio.Future[Any]] = set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do blocking work on a thread, and return or raise what it does."""
        call = partial(work, *args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        self._under_way.add(running)
        running.add_done_callback(self._under_way.discard)
        return await asyncio.shield(running)

    async def finish(self) -> None:
        """Wait for the work that has been submitted so far."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Accept no more work, and wait for the work in progress."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self.finish()
