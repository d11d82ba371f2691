"""Clocks controlled by tests: `tiltyard.runtime.clock.Clock` and `HostClock`."""

import asyncio
import heapq
import itertools
from concurrent.futures import Future, ThreadPoolExecutor
from operator import attrgetter
from sys import _current_frames
from time import monotonic
from typing import Any

from tiltyard.runtime.clock import SystemClock

_QUIET_ROUNDS = 3
_ROUND_SECONDS = 0.0005  # Seconds left to threads between two checks for idleness
_PATIENCE = 120.0  # Maximum seconds until all is idle: threads may wait for a slow disk

_unfinished: set[Future[Any] | asyncio.Future[Any]] = set()
"""Unfinished work of thread pools: a thread that has only dequeued its work looks idle."""
_submit = ThreadPoolExecutor.submit
_waits_for = attrgetter("_fut_waiter")  # None: the task can run, such as in sleep(0)


def _noted(pool: ThreadPoolExecutor, /, *work: Any, **named: Any) -> Future[Any]:
    future = _submit(pool, *work, **named)
    _unfinished.add(future)
    future.add_done_callback(_unfinished.discard)
    return future


def count_as_work(future: "asyncio.Future[Any]") -> None:
    """Let `until_idle` wait for what another thread will set."""
    _unfinished.add(future)
    future.add_done_callback(_unfinished.discard)


ThreadPoolExecutor.submit = _noted  # type: ignore[assignment, method-assign]


async def until_idle() -> None:
    """Return when every task waits and all thread pools are idle."""
    before = None
    quiet = 0
    deadline = monotonic() + _PATIENCE
    while monotonic() < deadline:
        await asyncio.sleep(0)
        now = _progress()
        quiet = quiet + 1 if now == before and not _can_run() and not _threads_at_work() else 0
        if quiet == _QUIET_ROUNDS:
            return
        before = now
        await asyncio.sleep(_ROUND_SECONDS)
    raise AssertionError("the tasks do not come to rest")


def _can_run() -> bool:
    """Return whether a task would run if the loop went on, wherever it stands."""
    waiting = map(_waits_for, asyncio.all_tasks() - {asyncio.current_task()})
    return any(future is None or future.done() for future in waiting)


def _progress() -> dict[int, list[int]]:
    """The position of each task in its chain of coroutines."""
    found: dict[int, list[int]] = {}
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        at: Any = task.get_coro()
        steps = found[id(task)] = []
        while (frame := getattr(at, "cr_frame", None)) is not None:
            steps.append(frame.f_lasti)
            at = at.cr_await
    return found


def _threads_at_work() -> bool:
    """Return whether a thread pool has running or queued work."""
    if _unfinished:
        return True
    for top in _current_frames().values():
        frame: Any = top
        while frame is not None and frame.f_code.co_name != "_worker":
            frame = frame.f_back
        if frame is None:
            continue
        if frame is not top or frame.f_locals.get("work_item") is not None:
            return True
    return False


class FakeClock:
    """A clock that only `advance` moves; wall, monotonic and boot time move together.

    `jump` moves the wall clock alone; `reboot` begins a new boot.
    """

    def __init__(self, time: float = 1_800_000_000.0) -> None:
        self._wall = time
        self._monotonic = 1_000.0
        self._boottime = 1_000.0
        self._boots = itertools.count(1)
        self.boot_id = f"boot-{next(self._boots)}"
        self.synchronised = True
        self._order = itertools.count()
        self._sleepers: list[tuple[float, int, asyncio.Future[None]]] = []

    def time(self) -> float:
        return self._wall

    def monotonic(self) -> float:
        return self._monotonic

    def boottime(self) -> float:
        return self._boottime

    def is_synchronised(self) -> bool:
        return self.synchronised

    async def sleep(self, seconds: float) -> None:
        await self.sleep_until_boottime(self._boottime + seconds)

    async def sleep_until_boottime(self, deadline: float) -> None:
        if deadline <= self._boottime:
            await asyncio.sleep(0)
            return
        wake = asyncio.get_running_loop().create_future()
        heapq.heappush(self._sleepers, (deadline, next(self._order), wake))
        await wake

    async def advance(self, seconds: float) -> None:
        """Wait until all is idle, then advance the time step by step through the sleepers."""
        await until_idle()
        end = self._boottime + seconds
        while self._sleepers and self._sleepers[0][0] <= end:
            deadline = self._sleepers[0][0]
            self.stall(max(0.0, deadline - self._boottime))
            woken = False
            while self._sleepers and self._sleepers[0][0] <= deadline:
                wake = heapq.heappop(self._sleepers)[2]
                if not wake.done():
                    wake.set_result(None)
                    woken = True
            if woken:
                await until_idle()
        self.stall(end - self._boottime)

    async def leap(self, seconds: float) -> None:
        """Advance a long time in one step: each sleeper wakes once, at its end."""
        await until_idle()
        self.stall(seconds)
        await self.advance(0.0)

    def jump(self, seconds: float) -> None:
        self._wall += seconds

    def reboot(self, up: float = 0.0) -> None:
        """Begin another boot, `up` seconds ago."""
        self.boot_id = f"boot-{next(self._boots)}"
        self._monotonic = self._boottime = up

    def stall(self, seconds: float) -> None:
        """Advance the time as in a stall of the program: sleepers wake at the next advance."""
        self._wall += seconds
        self._monotonic += seconds
        self._boottime += seconds


class AheadClock(SystemClock):
    """The machine's clock with its wall clock ahead by a number of seconds, and trusted."""

    def __init__(self, *, wall_ahead: float = 0.0) -> None:
        self.wall_ahead = wall_ahead

    def time(self) -> float:
        return super().time() + self.wall_ahead

    def is_synchronised(self) -> bool:
        return True


class BootingClock(AheadClock):
    """The clock of a machine that has booted just now, `synchronised` or not."""

    synchronised = False

    def boottime(self) -> float:
        return 0.0

    def is_synchronised(self) -> bool:
        return self.synchronised
