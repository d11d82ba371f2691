"""Run engine calls, one at a time per container."""

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar, cast
from weakref import WeakValueDictionary

from agent.docker.errors import Call
from agent.domain.errors import EngineTimeoutError
from tiltyard.runtime.tasks import TaskOwner

GENERAL_CALLS = 24  # Concurrent calls; the engine itself processes starts almost serially
CALLS_BESIDE_STARTS = 8  # However many start slots there are: starts must not take all calls
RESERVED_CALLS = 8
"""Reserved for kill and inspect: hanging starts must not prevent the end of a session."""

_RESERVED_FOR = frozenset({"kill", "inspect"})
_QUEUE_FACTOR = 2  # Queueing may take as long as the call itself


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


@dataclass(frozen=True, slots=True, kw_only=True)
class TimedCall(Call):
    """A call with a timeout. `seconds`: for each of its requests."""

    seconds: float


T = TypeVar("T")


class EngineCalls:
    """Runs calls, each with a deadline; at most one per container at a time.

    A cancelled call that has begun runs to its end and keeps its container's slot until then;
    one that has not begun is dropped.
    """

    def __init__(self, general: int = GENERAL_CALLS) -> None:
        """`general`: concurrent calls, without those reserved for kill and inspect."""
        self._general = asyncio.Semaphore(general)
        self._reserved = asyncio.Semaphore(RESERVED_CALLS)
        self._locks = WeakValueDictionary[str, asyncio.Lock]()
        self._in_progress = TaskOwner[Any](Exception)

    async def run(
        self, call: TimedCall, work: Callable[[], Coroutine[Any, Any, T]], *, queued: bool = True
    ) -> T:
        """Run `work`; EngineTimeoutError after twice its timeout, which includes queueing.

        Calls that hold slots may wait for one that is not `queued`.
        """
        held: list[asyncio.Lock | asyncio.Semaphore] = []
        try:
            async with asyncio.timeout(call.seconds * _QUEUE_FACTOR):
                for slot in self._slots(call) if queued else ():
                    await slot.acquire()
                    held.append(slot)
                task = self._in_progress.start(_until_done(work, held), f"engine-{call.name}")
                held = []
                return cast("T", await asyncio.shield(task))
        except TimeoutError as error:
            raise EngineTimeoutError(call.name) from error
        finally:
            _release(held)

    async def close(self) -> None:
        """Wait for the calls in progress."""
        await self._in_progress.wait()

    def _slots(self, call: Call) -> Iterator[asyncio.Lock | asyncio.Semaphore]:
        if call.container:
            yield self._locks.setdefault(call.container, asyncio.Lock())
        yield self._reserved if call.name in _RESERVED_FOR else self._general


async def _until_done(
    work: Callable[[], Coroutine[Any, Any, T]], held: Iterable[asyncio.Lock | asyncio.Semaphore]
) -> T:
    try:
        return await work()
    finally:
        _release(held)


def _release(held: Iterable[asyncio.Lock | asyncio.Semaphore]) -> None:
    for slot in held:
        slot.release()
