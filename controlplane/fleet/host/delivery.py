"""Calls to one host that are repeated until it has answered them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from controlplane.domain.errors import AgentRefusedError, AgentSilentError, StoreError
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import task_context
from tiltyard.runtime.tasks import TaskOwner

FIRST_RETRY = 0.1
"""Seconds after which what failed on a host is tried again, at first."""

MAX_BACK_OFF = 2.0
"""At most so long after its return a host is called again."""

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Owns the calls that one host has not answered yet, at most one for each key."""

    agent: str
    clock: Clock
    random: Random
    _tasks: TaskOwner[Any] = field(default_factory=TaskOwner)

    def get(self, *key: str) -> "asyncio.Task[Any] | None":
        """Return the task of a key while it runs."""
        return self._tasks.get(key)

    def start(
        self, *key: str, attempt: Callable[[], Awaitable[T]], failed: Callable[..., object]
    ) -> "asyncio.Task[T]":
        """Repeat `attempt` until it returns; the task that runs under the same key is cancelled.

        `failed` logs an error, and is called once for each new text of one.
        """
        return self._tasks.start(
            self._repeat(attempt, failed),
            f"{' '.join(key)} on {self.agent}",
            key=key,
            context=task_context("request", "account", agent=self.agent),
        )

    async def close(self) -> None:
        """Repeat nothing from now on."""
        await self._tasks.close()

    async def _repeat(
        self, attempt: Callable[[], Awaitable[T]], failed: Callable[..., object]
    ) -> T:
        logged = ""
        back_off = BackOff(self.clock, self.random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while True:
            try:
                return await attempt()
            except (AgentRefusedError, AgentSilentError, StoreError) as error:
                if str(error) != logged:
                    logged = str(error)
                    failed(error=logged)
            await back_off.wait()
