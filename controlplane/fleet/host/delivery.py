"""Calls to one host that are retried until it answers."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, TypeVar

from controlplane.domain.errors import AgentRefusedError, AgentUnavailableError, StoreError
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import FAULT_PAUSE, TaskOwner

log = get_logger(__name__)

FIRST_RETRY = 0.1  # Seconds before the first retry of a failed call
MAX_BACK_OFF = 2.0  # Maximum seconds between retries, hence after the return of a host

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Deliveries:
    """Owns the calls to one host that are in progress, at most one per key."""

    agent: str
    clock: Clock
    random: Random
    _tasks: TaskOwner[Any] = field(default_factory=TaskOwner)

    def get(self, *key: str) -> "asyncio.Task[Any] | None":
        """Return the running task of a key."""
        return self._tasks.get(key)

    def start(
        self, *key: str, attempt: Callable[[], Awaitable[T]], failed: Callable[..., object]
    ) -> "asyncio.Task[T]":
        """Retry `attempt` until it returns; cancel the running task of the same key.

        `failed` is called with `error` whenever its text changes.
        """
        return self._tasks.start(
            self._repeat(attempt, failed),
            f"{' '.join(key)} on {self.agent}",
            key=key,
            context=task_context("request", "account", agent=self.agent),
        )

    async def close(self) -> None:
        """Cancel all calls."""
        await self._tasks.close()

    async def _repeat(
        self, attempt: Callable[[], Awaitable[T]], failed: Callable[..., object]
    ) -> T:
        logged = ""
        back_off = BackOff(self.clock, self.random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while True:
            try:
                return await attempt()
            except (AgentRefusedError, AgentUnavailableError, StoreError) as error:
                if str(error) != logged:
                    logged = str(error)
                    failed(error=logged)
            except Exception:
                log.exception("a call fails: internal error", seconds=FAULT_PAUSE)
                await self.clock.sleep(FAULT_PAUSE)
            await back_off.wait()
