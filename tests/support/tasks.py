"""Tasks that a test begins and ends."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any


async def let_go(work: asyncio.Task[Any]) -> None:
    """Cancel a program unless the test did so, and wait for its cleanup.

    A second cancellation would interrupt the cleanup.
    """
    if not work.cancelling():
        work.cancel()
    await asyncio.gather(work, return_exceptions=True)


@contextlib.asynccontextmanager
async def running(*works: Coroutine[Any, Any, Any]) -> AsyncIterator[None]:
    """Run programs in the background meanwhile; raises the error of one that failed."""
    tasks = [asyncio.create_task(work, name="background") for work in works]
    try:
        yield
    finally:
        for task in tasks:
            await let_go(task)
        for task in tasks:
            if not task.cancelled():
                task.result()
