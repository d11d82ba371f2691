"""The orders to keep standbys that one host is told, until it has taken them."""

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from random import Random

from controlplane.domain.contract import StandbyOrder
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentSilentError,
)
from controlplane.fleet.host.state import FIRST_RETRY, HostState
from tiltyard.contract import ErrorReason
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.context import task_context
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

AT_ONCE = 4
"""Orders on their way to one host: each is a write to its disk."""

MAX_BACK_OFF = 2.0
"""An order reaches a host so soon after its return."""


class HostOrders:
    """Owns what one host is told of pools."""

    def __init__(
        self, host: HostState, *, clock: Clock, random: Random, unable: Callable[[], object]
    ) -> None:
        """Call `unable` when the host turns out to keep no standbys."""
        self.host = host
        self._on_unable = unable
        self._clock = clock
        self._random = random
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._told: dict[str, tuple[str, int]] = {}
        self._telling: dict[str, tuple[int, asyncio.Task[None]]] = {}
        self._unable = ""

    @property
    def is_unable(self) -> bool:
        """Return whether the agent is of a version that keeps no standbys."""
        return bool(self._unable) and self._unable == self.host.incarnation

    def has_taken(self, pool_id: str, revision: int) -> bool:
        """Return whether the host has an order about a pool, or one after it."""
        host = self.host
        known = None if host.report is None else host.report.warm_pools.get(pool_id)
        if known is not None and known.revision >= revision:
            return True
        return self._told.get(pool_id) == (host.incarnation, revision)

    def tell(self, orders: Iterable[StandbyOrder]) -> None:
        """Have the host told the newest orders about pools, as far as it has not taken them."""
        for order in orders:
            pool_id = order.pool_id
            revision, task = self._telling.get(pool_id, (0, None))
            if revision == order.revision or not self._is_due(order):
                continue
            if task is not None:
                task.cancel()
            name = f"order {order.revision} of pool {pool_id} to {self.host.name}"
            own = task_context(agent=self.host.name)
            task = asyncio.create_task(self._tell(order), name=name, context=own)
            self._telling[pool_id] = order.revision, task
            task.add_done_callback(partial(self._ended, pool_id))

    async def close(self) -> None:
        """Tell it nothing now."""
        tasks = [task for _, task in self._telling.values()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _is_due(self, order: StandbyOrder) -> bool:
        if self.host.report is None or self.is_unable:
            return False
        return not self.has_taken(order.pool_id, order.revision)

    async def _tell(self, order: StandbyOrder) -> None:
        name, logged = self.host.name, ""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while self._is_due(order):
            incarnation = self.host.incarnation
            try:
                async with self._slots:
                    await self.host.client.set_warm_pool(order)
            except (AgentRefusedError, AgentSilentError) as error:
                if _is_unimplemented(error):
                    self._unable = incarnation
                    self._on_unable()
                if str(error) != logged:
                    logged = str(error)
                    log.warning(
                        "cannot tell it of a warm pool",
                        agent=name,
                        pool=order.pool_id,
                        error=str(error),
                    )
                await back_off.wait()
            else:
                self._told[order.pool_id] = incarnation, order.revision

    def _ended(self, pool_id: str, task: asyncio.Task[None]) -> None:
        if self._telling.get(pool_id, (0, None))[1] is task:
            del self._telling[pool_id]


def _is_unimplemented(error: Exception) -> bool:
    return isinstance(error, AgentRefusedError) and (
        error.agent_reason is ErrorReason.UNIMPLEMENTED
    )
