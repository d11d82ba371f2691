"""Tasks that a test begins and ends."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path
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


async def ended(work: asyncio.Task[None], patience: float) -> None:
    """Wait until a program has ended; AssertionError with what is open if it does not."""
    _, late = await asyncio.wait({work}, timeout=patience)
    if late:
        left = "\n".join(_left_open())
        work.cancel()
        raise AssertionError(f"{work.get_name()} has not ended; left open:\n{left}")
    if not work.cancelled():
        work.result()


def _left_open() -> list[str]:
    """Describe all tasks with the lines at which they wait, and all threads."""
    tasks = [f"task {task.get_name()}: {waits_at(task)}" for task in asyncio.all_tasks()]
    return tasks + [f"thread {thread.name}" for thread in threading.enumerate()]


def waits_at(task: asyncio.Task[Any]) -> str:
    """Describe the chain of coroutines in which a task waits; "" if it has ended."""
    lines: list[str] = []
    coroutine: Any = task.get_coro()
    while getattr(coroutine, "cr_frame", None) is not None:
        code = coroutine.cr_frame.f_code
        line = f"{Path(code.co_filename).name}:{coroutine.cr_frame.f_lineno}"
        lines.append(f"{code.co_name} ({line})")
        coroutine = coroutine.cr_await
    return " > ".join(lines)
