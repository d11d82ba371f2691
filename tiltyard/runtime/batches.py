"""Work on items in batches: whatever waits while a batch is under way forms the next."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Generic, TypeVar

from tiltyard.runtime.tasks import TaskOwner

T = TypeVar("T")
R = TypeVar("R")


class Batches(Generic[T, R]):
    """Runs `work`, one batch at a time; it returns a result for each item."""

    def __init__(self, work: Callable[[list[T]], Awaitable[Sequence[R]]], name: str) -> None:
        self._work = work
        self._name = name
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._is_running = False
        self._tasks = TaskOwner[None]()

    async def add(self, item: T) -> R:
        """Return the item's result. An error of its batch is raised; a cancelled item is done."""
        result: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((item, result))
        if not self._is_running:
            self._is_running = True
            self._tasks.start(self._run(), self._name)
        return await result

    async def finish(self) -> None:
        """Wait until no item waits."""
        await self._tasks.wait()

    async def _run(self) -> None:
        while self._waiting:
            batch = self._waiting
            self._waiting = []
            try:
                results = await self._work([item for item, _ in batch])
            except Exception as error:  # noqa: BLE001  # each waiter gets it
                for _, result in batch:
                    if not result.done():
                        result.set_exception(error)
            else:
                for (_, result), found in zip(batch, results, strict=True):
                    if not result.done():
                        result.set_result(found)
        self._is_running = False
