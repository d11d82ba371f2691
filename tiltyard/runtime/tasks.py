"""Owned asyncio tasks, and blocking work on threads."""

import asyncio
from collections.abc import Callable, Coroutine, Hashable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from tiltyard.runtime.back_off import pause
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

FAULT_PAUSE = 60.0  # Seconds until work is repeated after an error that it does not expect

P = ParamSpec("P")
T = TypeVar("T")


class TaskOwner(Generic[T]):
    """Owns the tasks of a component, at most one per key.

    Failures of background tasks are logged, except `expected` errors.
    """

    def __init__(self, expected: type[Exception] | tuple[type[Exception], ...] = ()) -> None:
        self._expected = expected
        self._keys: dict[asyncio.Task[T], Hashable] = {}
        """All tasks that have not ended, the oldest first, with their keys."""
        self._current: dict[Hashable, asyncio.Task[T]] = {}
        """The task of each key; one that was replaced may not have ended yet."""

    def __iter__(self) -> Iterator[asyncio.Task[T]]:
        return iter(tuple(self._keys))

    def __contains__(self, key: Hashable) -> bool:
        return key in self._current

    def __len__(self) -> int:
        return len(self._keys)

    def get(self, key: Hashable) -> asyncio.Task[T] | None:
        """Return the running task of a key."""
        return self._current.get(key)

    def start(
        self,
        work: Coroutine[Any, Any, T],
        name: str,
        *,
        key: Hashable = None,
        context: Context | None = None,
    ) -> asyncio.Task[T]:
        """Start a background task; a running task of the same key is cancelled."""
        replaced = self._current.get(key)
        if replaced is not None:
            replaced.cancel()
        task = self._own(work, name, key, context)
        task.add_done_callback(self._report, context=context)
        return task

    async def finish(self, work: Coroutine[Any, Any, T], name: str) -> T:
        """Await work that continues even if the caller is cancelled."""
        task = self._own(work, name, None, None)
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            task.add_done_callback(self._report)
            raise

    async def wait(self) -> None:
        """Wait for all tasks to end. Cancellation does not reach them."""
        if self._keys:
            await asyncio.wait(tuple(self))

    async def close(self) -> None:
        """Cancel all tasks and wait for their end."""
        for task in self:
            task.cancel()
        await self.wait()

    def _own(
        self, work: Coroutine[Any, Any, T], name: str, key: Hashable, context: Context | None
    ) -> asyncio.Task[T]:
        task = asyncio.create_task(work, name=name, context=context)
        self._keys[task] = key
        if key is not None:
            self._current[key] = task
        task.add_done_callback(self._forget)
        return task

    def _forget(self, task: asyncio.Task[T]) -> None:
        key = self._keys.pop(task)
        if self._current.get(key) is task:
            del self._current[key]

    def _report(self, task: asyncio.Task[T]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, self._expected):
            log.error("task failed: internal error", task=task.get_name(), exc_info=error)


class Threads:
    """A thread pool. Cancelling a wait does not cancel the work."""

    def __init__(self, most: int, name: str) -> None:
        self._pool = ThreadPoolExecutor(most, name)
        self._under_way: set[asyncio.Future[Any]] = set()

    async def run(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Run blocking work on a thread and return its result."""
        call = partial(work, *args, **kwargs)
        running = asyncio.get_running_loop().run_in_executor(self._pool, call)
        self._under_way.add(running)
        running.add_done_callback(self._finished)
        return await asyncio.shield(running)

    def _finished(self, running: asyncio.Future[Any]) -> None:
        self._under_way.discard(running)
        if not running.cancelled():
            running.exception()  # Its wait may be gone: then asyncio would log it as lost

    async def finish(self) -> None:
        """Wait for the work that has been submitted so far."""
        await asyncio.gather(*self._under_way, return_exceptions=True)

    async def close(self) -> None:
        """Reject new work and wait for the work in progress."""
        self._pool.shutdown(wait=False, cancel_futures=True)
        await self.finish()


def contained(event: str, **about: object) -> "_Contained":
    """Let an unexpected error of the `with` body end only the body: it is logged as `event`.

    For work on one session, account or connection, in a loop over all of them.
    """
    return _Contained(event, about)


class _Contained:
    def __init__(self, event: str, about: Mapping[str, object]) -> None:
        self._event = event
        self._about = about

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, _traceback: object) -> bool:
        if not isinstance(error, Exception):
            return False
        log.error(self._event, exc_info=error, **self._about)
        return True


async def run_again(
    work: Callable[[], Coroutine[Any, Any, None]], clock: Clock, *, first: float | None = None
) -> None:
    """Run work until it returns, again and again after unexpected errors.

    For tasks whose errors one session or peer can cause: an error is logged, and ends nothing
    else. The pause is FAULT_PAUSE; with `first`, as many seconds at first, doubled up to that
    while one error follows another.
    """
    longest = FAULT_PAUSE
    failures = 0
    while True:
        began = clock.monotonic()
        try:
            return await work()
        except Exception:
            failures = 1 if clock.monotonic() - began > longest else failures + 1
            seconds = pause(failures, first=first or longest, longest=longest)
            log.exception("internal error: it runs again after a pause", seconds=seconds)
        await clock.sleep(seconds)


async def first_completed(
    work: Coroutine[Any, Any, object], other: Coroutine[Any, Any, object], name: str
) -> bool:
    """Wait for the first of both and cancel the other. Return whether `work` has finished.

    The error of the first one is raised. Cancellation cancels both.
    """
    first = asyncio.create_task(work, name=name)
    second = asyncio.create_task(other, name=f"{name}-limit")
    try:
        await asyncio.wait({first, second}, return_when=asyncio.FIRST_COMPLETED)
        (first if first.done() else second).result()
        return first.done()
    finally:
        first.cancel()
        second.cancel()
        await asyncio.gather(first, second, return_exceptions=True)
