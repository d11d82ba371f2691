"""The orders to keep standbys: each is sent to its host until that has taken it."""

import asyncio
from functools import partial

from controlplane.domain.contract import PoolOnHost, StandbyOrder
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from tiltyard.contract import SessionSpec
from tiltyard.runtime.clock import Clock, to_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

AT_ONCE = 4
"""Orders on their way to one host: each is a write to its disk."""

_UNKNOWN = PoolOnHost(0, 0)


class PoolOrders:
    """Owns the orders about the warm pools of one host."""

    def __init__(self, host: HostState, deliveries: Deliveries, clock: Clock) -> None:
        self._host = host
        self._deliveries = deliveries
        self._clock = clock
        self._slots = asyncio.Semaphore(AT_ONCE)
        self._newest: dict[str, StandbyOrder] = {}
        self._acknowledged: dict[str, tuple[str, int]] = {}

    @property
    def pools(self) -> set[str]:
        """The pools that the host keeps, or was ordered to keep or to end."""
        report = self._host.report
        return self._newest.keys() | (report.warm_pools.keys() if report else set())

    def size(self, pool_id: str) -> int:
        """Return the share of a pool: as ordered, unless the host reports a later order."""
        known, newest = self._known(pool_id), self._newest.get(pool_id)
        return known.size if newest is None or known.revision > newest.revision else newest.size

    def set(self, pool_id: str, size: int, spec: SessionSpec | None, claim_signal: str) -> None:
        """Order standbys, unless that is the newest order, and send what the host has not taken.

        Revisions are the wall time where it is higher, so that they are past those of another
        control plane, also of one whose database was lost.
        """
        known, newest = self._known(pool_id), self._newest.get(pool_id)
        if newest is None and not size and not known.size:
            return
        last = max(known.revision, newest.revision if newest else 0)
        if newest != StandbyOrder(pool_id, last, size, spec, claim_signal):
            revision = max(to_ms(self._clock.time()), last + 1)
            self._newest[pool_id] = StandbyOrder(pool_id, revision, size, spec, claim_signal)
        if self._pending(pool_id) and self._deliveries.get("pool", pool_id) is None:
            self._deliveries.start(
                "pool",
                pool_id,
                attempt=partial(self._attempt, pool_id),
                failed=partial(log.warning, "cannot order standbys of a pool", pool=pool_id),
            )

    def _known(self, pool_id: str) -> PoolOnHost:
        report = self._host.report
        return _UNKNOWN if report is None else report.warm_pools.get(pool_id, _UNKNOWN)

    def _pending(self, pool_id: str) -> StandbyOrder | None:
        """Return the newest order unless the host has it; forget one that ended its pool there."""
        order = self._newest.get(pool_id)
        if order is None or self._host.report is None or self._host.removed:
            return None
        if self._known(pool_id).revision >= order.revision:
            if not order.size:
                del self._newest[pool_id]
            return None
        is_acknowledged = self._acknowledged.get(pool_id) == (
            self._host.incarnation,
            order.revision,
        )
        return None if is_acknowledged else order

    async def _attempt(self, pool_id: str) -> None:
        while (order := self._pending(pool_id)) is not None:
            incarnation = self._host.incarnation
            async with self._slots:
                await self._host.client.set_warm_pool(order)
            self._acknowledged[pool_id] = incarnation, order.revision
