"""An event loop with simulated time: waiting advances it at once."""

import asyncio
import contextvars
import selectors
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

_T = TypeVar("_T")

EPOCH = 1_800_000_000.0  # Unix time at the start of a loop
MOMENT = 1e-9  # Minimum advance in seconds: a rounding error must not stop the clock

owner: contextvars.ContextVar[object] = contextvars.ContextVar("owner", default=None)
"""The program that a task belongs to; child tasks inherit it."""


class VirtualLoop(asyncio.SelectorEventLoop):
    """A loop without other threads: executors run inline. Time advances when all tasks wait."""

    def __init__(self) -> None:
        self.now = 0.0
        super().__init__(_Selector(self))
        self._owners: dict[asyncio.Task[Any], object] = {}
        self.set_task_factory(self._make_task)  # type: ignore[arg-type]  # it is one

    def time(self) -> float:
        return self.now

    def run_in_executor(  # type: ignore[override]
        self, executor: object, func: Callable[..., _T], *args: Any
    ) -> asyncio.Future[_T]:
        future: asyncio.Future[_T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:  # noqa: BLE001 - passed on to the caller
            future.set_exception(error)
        return future

    def spawn(self, program: object, work: Coroutine[Any, Any, _T], name: str) -> asyncio.Task[_T]:
        """Start a task that belongs to this program."""
        context = contextvars.copy_context()
        context.run(owner.set, program)
        return context.run(lambda: self.create_task(work, name=name))

    async def end(self, program: object) -> None:
        """Cancel all tasks of a program until none is left."""
        while mine := [task for task, whose in self._owners.items() if whose is program]:
            for task in mine:
                task.cancel()
            await asyncio.wait(mine, timeout=0.001)

    def _make_task(
        self,
        loop: asyncio.AbstractEventLoop,
        work: Coroutine[Any, Any, Any],
        context: contextvars.Context | None = None,
    ) -> asyncio.Task[Any]:
        task = asyncio.Task(work, loop=loop, context=context)
        self._owners[task] = owner.get()
        task.add_done_callback(self._owners.pop)
        return task


class _Selector(selectors.SelectSelector):
    """Advances the time instead of waiting."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready:
            assert timeout is not None, "everybody waits for what will never come"
            self._loop.now += max(timeout, MOMENT)
        return ready


class VirtualClock:
    """The clocks of a machine on a virtual loop; its wall clock is `skew` seconds ahead."""

    boot_id = "boot-1"

    def __init__(self, loop: VirtualLoop, skew: float = 0.0) -> None:
        self._loop = loop
        self._skew = skew

    def time(self) -> float:
        return EPOCH + self._skew + self._loop.now

    def monotonic(self) -> float:
        return self._loop.now

    boottime = monotonic

    def is_synchronised(self) -> bool:
        return True

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    async def sleep_until_boottime(self, deadline: float) -> None:
        await asyncio.sleep(max(0.0, deadline - self.boottime()))
