"""Calls to one host that are retried until it answers.

A call that a caller has requested begins at once. Retries, and calls that follow from what the
host reports, wait for a slot of their kind: a host may report anything, and must not decide how
many calls are made.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError, StoreError
from tiltyard.runtime.back_off import pause
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import FAULT_PAUSE, TaskOwner

log = get_logger(__name__)

FIRST_RETRY = 0.1  # Seconds before the first retry of a failed call
MAX_BACK_OFF = 2.0  # Maximum seconds between retries, hence after the return of a host

AT_ONCE = {"stop": 64, "claim": 16, "pool": 4, "drain": 1, "shapes": 1}
"""Concurrent calls of each kind to one host. A stop waits for the end of its session; a pool order
is a write to the host's disk."""

PER_SECOND = 64.0
"""Calls of a kind that begin per second at most, however fast the host answers."""

MAX_WAITING = 20_000
"""Calls of a kind that wait for a slot; an honest host has no more sessions."""

T = TypeVar("T")


@dataclass(slots=True, eq=False)
class _Call:
    """A call that is retried. `failed` is called with `error` whenever its text changes."""

    attempt: Callable[[], Awaitable[Any]]
    failed: Callable[..., object]
    failures: int = 0
    logged: str = ""


class _Slots:
    """The slots of one kind of calls."""

    def __init__(self, count: int, clock: Clock) -> None:
        self._free = asyncio.Semaphore(count)
        self._clock = clock
        self._next_at = float("-inf")

    async def take(self) -> None:
        """Wait until a call may begin."""
        await self._free.acquire()
        now = self._clock.monotonic()
        begin_at = max(now, self._next_at)
        self._next_at = begin_at + 1 / PER_SECOND
        try:
            if begin_at > now:
                await self._clock.sleep(begin_at - now)
        except BaseException:
            self._free.release()
            raise

    def release(self) -> None:
        """End a call."""
        self._free.release()


@dataclass(slots=True)
class _Failed:
    """The seconds after which a call is retried."""

    seconds: float


class Deliveries:
    """Owns the calls to one host that are in progress or wait, at most one per key.

    The first text of a key is its kind, of `AT_ONCE`.
    """

    def __init__(self, agent: str, clock: Clock, random: Random) -> None:
        self._agent = agent
        self._clock = clock
        self._random = random
        self._tasks = TaskOwner[Any]()
        self._slots = {kind: _Slots(count, clock) for kind, count in AT_ONCE.items()}
        self._waiting: dict[str, dict[tuple[str, ...], _Call]] = {kind: {} for kind in AT_ONCE}

    def get(self, *key: str) -> "asyncio.Task[Any] | None":
        """Return the task of a key that `start` has begun."""
        return self._tasks.get(key)

    def start(
        self,
        *key: str,
        attempt: Callable[[], Awaitable[T]],
        failed: Callable[..., object],
        at_once: bool = True,
    ) -> "asyncio.Task[T]":
        """Retry `attempt` until it returns; cancel the running task of the same key.

        `failed` is called with `error` whenever its text changes. With `at_once`, only retries
        wait for a slot.
        """
        work = self._repeat(_Call(attempt, failed), self._slots[key[0]], at_once=at_once)
        return self._begin(key, work, "request", "account")

    def queue(
        self, *key: str, attempt: Callable[[], Awaitable[T]], failed: Callable[..., object]
    ) -> None:
        """Do as `start` when a slot is free, unless the key is waiting or in progress.

        What waits costs a few hundred bytes, and no task.
        """
        kind = key[0]
        waiting = self._waiting[kind]
        is_known = key in waiting or self._runs(key) or self._runs(("queued", *key))
        if not is_known and len(waiting) < MAX_WAITING:
            self._put(key, _Call(attempt, failed))

    async def close(self) -> None:
        """Cancel all calls."""
        for waiting in self._waiting.values():
            waiting.clear()
        await self._tasks.close()

    def _put(self, key: tuple[str, ...], call: _Call) -> None:
        kind = key[0]
        self._waiting[kind][key] = call
        worker = ("worker", kind)
        if not self._runs(worker):
            self._begin(worker, self._work_off(kind))

    def _runs(self, key: tuple[str, ...]) -> bool:
        task = self._tasks.get(key)
        return task is not None and not task.done()

    def _begin(
        self, key: tuple[str, ...], work: Coroutine[Any, Any, T], *fields: str
    ) -> "asyncio.Task[T]":
        """Begin a task that keeps these log fields of its creator."""
        name = f"{' '.join(key)} on {self._agent}"
        context = task_context(*fields, agent=self._agent)
        return self._tasks.start(work, name, key=key, context=context)

    async def _work_off(self, kind: str) -> None:
        waiting = self._waiting[kind]
        slots = self._slots[kind]
        while waiting:
            await slots.take()
            key = next(iter(waiting))
            self._begin(("queued", *key), self._carry_out(key, waiting.pop(key), slots))

    async def _carry_out(self, key: tuple[str, ...], call: _Call, slots: _Slots) -> None:
        """Try a queued call; after a failure it waits behind the others."""
        try:
            outcome = await self._try(call)
        finally:
            slots.release()
        if isinstance(outcome, _Failed):
            await self._clock.sleep(outcome.seconds)
            self._put(key, call)

    async def _repeat(self, call: _Call, slots: _Slots, *, at_once: bool) -> Any:
        if at_once:
            outcome = await self._try(call)
        else:
            outcome = await self._try_in_slot(call, slots)
        while isinstance(outcome, _Failed):
            await self._clock.sleep(outcome.seconds)
            outcome = await self._try_in_slot(call, slots)
        return outcome

    async def _try_in_slot(self, call: _Call, slots: _Slots) -> Any:
        await slots.take()
        try:
            return await self._try(call)
        finally:
            slots.release()

    async def _try(self, call: _Call) -> Any:
        try:
            return await call.attempt()
        except (AgentRefusedError, AgentUnavailableError, StoreError) as error:
            if str(error) != call.logged:
                call.logged = str(error)
                call.failed(error=call.logged)
            call.failures += 1
            return _Failed(
                pause(call.failures, first=FIRST_RETRY, longest=MAX_BACK_OFF, random=self._random)
            )
        except Exception:
            log.exception("a call fails: internal error", seconds=FAULT_PAUSE)
            return _Failed(FAULT_PAUSE)
