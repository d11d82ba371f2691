"""Applies changes in a task: of the database to memory, or of memory to the database.

A reader that can wait uses a `Cache`, which drops changed rows. Decisions that the event loop
makes without waiting, such as the choice of a host, use copies in memory: a task reads changed
rows and updates the copies. In the same way a task writes state that only memory has, such as the
reports of hosts.
"""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Hashable
from typing import Generic, TypeVar

from controlplane.domain.errors import StoreError
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import FAULT_PAUSE, TaskOwner

log = get_logger(__name__)

_Change = TypeVar("_Change", bound=Hashable)

FIRST_RETRY = 0.1
LONGEST_RETRY = 5.0
"""Seconds between retries while the database fails."""


class Follower(Generic[_Change]):
    """Applies noted changes, those of one moment together, in a task of its own.

    An error is logged. After a pause, the changes are applied again, with those noted since.
    """

    def __init__(
        self,
        name: str,
        apply: Callable[[Collection[_Change]], Awaitable[object]],
        clock: Clock,
    ) -> None:
        """`apply` gets the changes, and can be repeated; it may raise StoreError."""
        self._name = name
        self._apply = apply
        self._clock = clock
        self._changed: dict[_Change, None] = {}
        """The changes that no round has begun to apply, each once, in order."""
        self._begun = 0
        self._ended = 0
        self._round_ended = asyncio.Event()
        self._is_running = False
        self._is_closed = False
        self._tasks = TaskOwner[None]()

    def note(self, change: _Change) -> None:
        """Apply a change together with others of this moment; no-op after `close`."""
        self._changed[change] = None
        if not (self._is_running or self._is_closed):
            self._is_running = True
            self._tasks.start(self._run(), self._name, context=task_context())

    async def caught_up(self) -> None:
        """Wait until all changes noted so far were applied, or applying them has failed once.

        Returns when the follower is closed.
        """
        last = self._begun + bool(self._changed)
        while self._ended < last and not self._is_closed:
            await self._round_ended.wait()

    async def close(self) -> None:
        """Stop applying changes. Idempotent."""
        self._is_closed = True
        await self._tasks.close()
        self._round_ended.set()

    async def _run(self) -> None:
        back_off = BackOff(self._clock, first=FIRST_RETRY, longest=LONGEST_RETRY)
        while self._changed:
            changed = self._changed
            self._changed = {}
            self._begun += 1
            pause: Awaitable[None] | None = None
            try:
                await self._apply(changed)
                back_off.reset()
            except StoreError as error:
                log.warning("cannot apply what has changed", part=self._name, error=str(error))
                pause = back_off.wait()
            except Exception:
                log.exception("cannot apply what has changed: internal error", part=self._name)
                pause = self._clock.sleep(FAULT_PAUSE)
            finally:
                self._end_round()
            if pause is not None:
                self._changed = changed | self._changed
                await pause
        self._is_running = False

    def _end_round(self) -> None:
        self._ended += 1
        self._round_ended.set()
        self._round_ended = asyncio.Event()
