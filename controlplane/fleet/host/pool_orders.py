"""The orders to keep standbys: each is sent to its host until that has taken it."""

import asyncio
from collections.abc import Iterable
from functools import partial

from controlplane.domain.contract import StandbyOrder
from controlplane.domain.errors import AgentRefusedError
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from tiltyard.contract import ErrorReason
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

AT_ONCE = 4
"""Orders on their way to one host: each is a write to its disk."""


class PoolOrders:
    """Owns the orders about the warm pools of one host."""

    def __init__(self, host: HostState, deliveries: Deliveries) -> None:
        self._host = host
        self._deliveries = deliveries
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._acknowledged: dict[str, tuple[str, int]] = {}
        self._sending: dict[str, int] = {}
        self._unsupported_by = ""

    @property
    def is_unsupported(self) -> bool:
        """Return whether the agent is of a version that keeps no standbys."""
        return bool(self._unsupported_by) and self._unsupported_by == self._host.incarnation

    def is_acknowledged(self, pool_id: str, revision: int) -> bool:
        """Return whether the host has an order about a pool, or one after it."""
        report = self._host.report
        known = None if report is None else report.warm_pools.get(pool_id)
        if known is not None and known.revision >= revision:
            return True
        return self._acknowledged.get(pool_id) == (self._host.incarnation, revision)

    def send(self, orders: Iterable[StandbyOrder]) -> None:
        """Send the host the newest orders about pools, as far as it has not taken them."""
        for order in orders:
            pool_id = order.pool_id
            is_sending = self._deliveries.get("pool", pool_id) is not None
            if is_sending and self._sending[pool_id] == order.revision:
                continue
            if self._is_pending(order):
                self._sending[pool_id] = order.revision
                self._deliveries.start(
                    "pool",
                    pool_id,
                    attempt=partial(self._attempt, order),
                    failed=partial(log.warning, "cannot order standbys of a pool", pool=pool_id),
                )

    def _is_pending(self, order: StandbyOrder) -> bool:
        if self._host.report is None or self._host.removed or self.is_unsupported:
            return False
        return not self.is_acknowledged(order.pool_id, order.revision)

    async def _attempt(self, order: StandbyOrder) -> None:
        while self._is_pending(order):
            incarnation = self._host.incarnation
            try:
                async with self._slots:
                    await self._host.client.set_warm_pool(order)
            except AgentRefusedError as error:
                if error.agent_reason is ErrorReason.UNIMPLEMENTED:
                    self._unsupported_by = incarnation
                    self._host.notify()
                raise
            self._acknowledged[order.pool_id] = incarnation, order.revision
