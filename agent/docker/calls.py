"""Run blocking engine calls on threads, one at a time per container."""

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
"""Reserved for kill and inspect: hanging starts must not prevent the end of a session."""

_RESERVED_FOR = frozenset({"kill", "inspect"})
_QUEUE_FACTOR = 2
"""Queueing may take as long as the call itself."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Timeouts of engine calls in seconds.

    `start`: 20 concurrent starts on two cores took 23 s. `remove` queues behind starts.
    `stream`, `pull`: maximum time without data. `walk`: of all files of a container.
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

    A cancelled call that has begun runs to its end and keeps its container's slot until then;
    one that has not begun is dropped.
    """

    def __init__(self) -> None:
        self._general = ThreadPoolExecutor(GENERAL_THREADS, "engine")
        self._reserved = ThreadPoolExecutor(KEPT_THREADS, "engine-kept")
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._in_progress: set[asyncio.Future[object]] = set()

    async def run(self, call: Call, seconds: float, work: Callable[[], T]) -> T:
        """Run `work`; EngineTimeoutError after twice `seconds`, which includes queueing."""
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
        """Wait for the calls in progress and end the threads."""
        for pool in (self._general, self._reserved):
            pool.shutdown(wait=False, cancel_futures=True)
        while self._in_progress:
            await asyncio.wait(self._in_progress)

    async def _on_thread(
        self, call: Call, work: Callable[[], T], then: Callable[[], None] = lambda: None
    ) -> T:
        pool = self._reserved if call.name in _RESERVED_FOR else self._general
        begun: Future[T] = pool.submit(work)
        future = asyncio.wrap_future(begun)
        self._in_progress.add(future)  # type: ignore[arg-type]  # of any result
        future.add_done_callback(self._in_progress.discard)
        future.add_done_callback(lambda _: then())
        try:
            return await asyncio.shield(future)
        finally:
            begun.cancel()  # no effect once it has begun
