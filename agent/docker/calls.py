"""Blocking calls of an engine's client on threads of their own, one at a time per container."""

import asyncio
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import TypeVar
from weakref import WeakValueDictionary

from agent.docker.errors import Call
from agent.domain.errors import EngineTimeoutError

GENERAL_THREADS = 24
"""Concurrent calls; the engine itself processes starts almost serially."""
KEPT_THREADS = 8
"""More, for kill and inspect only: starts that hang must not keep a session from being ended."""

_KEPT_FOR = frozenset({"kill", "inspect"})
_QUEUE_FACTOR = 2
"""A call may wait for its slot and a thread as long again as for the engine."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds that the engine is given to answer.

    `start`: 20 at once on two cores took 23 s. `remove` takes down a network and a file system,
    behind starts. `stream` and `pull`: the longest time without data. `walk`: of all files of a
    container.
    """

    read: float = 10.0
    create: float = 30.0
    start: float = 60.0
    kill: float = 10.0
    remove: float = 60.0
    stream: float = 30.0
    pull: float = 120.0
    walk: float = 120.0


T = TypeVar("T")


class EngineCalls:
    """Runs calls on threads, each with a deadline; at most one per container at a time.

    A waiter may be cancelled: a call that has begun ends on its thread and occupies its
    container's slot until then; one that has not begun is never made.
    """

    def __init__(self) -> None:
        self._general = ThreadPoolExecutor(GENERAL_THREADS, "engine")
        self._kept = ThreadPoolExecutor(KEPT_THREADS, "engine-kept")
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._under_way: set[asyncio.Future[object]] = set()

    async def run(self, call: Call, seconds: float, work: Callable[[], T]) -> T:
        """Return what `work` returns; EngineTimeoutError when it takes far more than `seconds`."""
        try:
            async with asyncio.timeout(seconds * _QUEUE_FACTOR):
                if not call.container:
                    return await self._on_thread(call, work)
                lock = self._locks.setdefault(call.container, asyncio.Lock())
                await lock.acquire()
                return await self._on_thread(call, work, lock.release)
        except TimeoutError as error:
            raise EngineTimeoutError(call.name) from error

    async def close(self) -> None:
        """Wait for the calls in progress, each of which has a deadline, and end the threads."""
        for pool in (self._general, self._kept):
            pool.shutdown(wait=False, cancel_futures=True)
        while self._under_way:
            await asyncio.wait(self._under_way)

    async def _on_thread(
        self, call: Call, work: Callable[[], T], then: Callable[[], None] = lambda: None
    ) -> T:
        pool = self._kept if call.name in _KEPT_FOR else self._general
        begun: Future[T] = pool.submit(work)
        future = asyncio.wrap_future(begun)
        self._under_way.add(future)  # type: ignore[arg-type]  # of any result
        future.add_done_callback(self._under_way.discard)
        future.add_done_callback(lambda _: then())
        try:
            return await asyncio.shield(future)
        finally:
            begun.cancel()  # without effect on one that has begun
