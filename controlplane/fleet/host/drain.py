"""The drain of one host: orders are sent until it reports them, and learned from it.

The order with the highest revision holds. One that was given on the host itself has the revision
of the control plane's order before it, and holds until the next: it is learned and not undone.
Where a host reports a higher revision than is stored, the database is older than that order: it is
learned, too, and the next order goes past it.
"""

import asyncio
from functools import partial

from controlplane.domain.contract import Drain
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import learn_drain
from tiltyard.runtime.clock import Clock, to_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


class DrainOrders:
    """Owns the orders to drain one host or not."""

    def __init__(
        self, host: HostState, store: Store, deliveries: Deliveries, clock: Clock
    ) -> None:
        self._host = host
        self._store = store
        self._deliveries = deliveries
        self._clock = clock
        self._stored = host.drain

    async def reported(self, *, reconnected: bool) -> None:
        """Learn the order that the host just reported, or send it the one that it lacks.

        When it `reconnected`, a call from before may hang on a dead connection.

        Raises:
            StoreError: It cannot be written.
        """
        learned = self._host.drain
        if learned != self._stored:
            await self._store.run(learn_drain, self._host.name, learned)
            log.info("learned of its drain", draining=learned.draining)
            if self._stored.revision <= learned.revision:  # else there was an order meanwhile
                self._stored = learned
        if self._host.drain_pending:
            self._send(again=reconnected)

    def order(self, drain: Drain) -> None:
        """Send the host an order that is in the database, however long that takes."""
        self._stored = drain
        self._host.order_drain(drain)
        self._host.notify()
        self._send()

    async def acknowledged(self, timeout: float) -> None:
        """Wait until the host has acknowledged its orders, at most `timeout` seconds."""
        task = self._deliveries.get("drain")
        if task is not None:
            await asyncio.wait({task}, timeout=timeout)

    def _send(self, *, again: bool = False) -> None:
        if again or self._deliveries.get("drain") is None:
            failed = partial(log.warning, "cannot set its drain")
            self._deliveries.start("drain", attempt=self._attempt, failed=failed)

    async def _attempt(self) -> None:
        """Send the newest order until no newer one is pending."""
        while self._host.drain_pending:
            order = self._host.drain
            await self._host.client.set_drain(order, to_ms(self._clock.time()))
            self._host.acknowledge_drain(order)
            self._host.notify()
            if self._host.report is None:
                return  # what it reports first tells whether more is pending
