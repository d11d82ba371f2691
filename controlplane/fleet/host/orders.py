"""Sends the orders of one host until it has them: its drain, its warm pools and its shapes.

`controlplane.domain.hosts.desired_state` has the orders, and those that the host has acknowledged.
"""

import asyncio
from dataclasses import dataclass, field
from functools import partial

from controlplane.domain.errors import AgentRefusedError
from controlplane.domain.hosts.contract import Drain, StandbyOrder
from controlplane.domain.hosts.desired_state import Shapes
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.state import HostState
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts.fleet import learn_drain
from tiltyard.contract import ErrorReason, SessionSpec
from tiltyard.runtime.clock import Clock, is_trusted, to_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


@dataclass(slots=True)
class Orders:
    """Owns the orders of one host."""

    host: HostState
    store: Store
    deliveries: Deliveries
    clock: Clock
    _sent_to: str = field(init=False, default="")
    """The incarnation of the agent that was sent all pending pools."""
    _stored_drain: Drain = field(init=False)
    _loaded_drain: Drain = field(init=False)  # Of an earlier run of the control plane

    def __post_init__(self) -> None:
        self._stored_drain = self._loaded_drain = self.host.drain

    def on_change(self) -> None:
        """Send the shapes if the host needs them, and the pools that a restarted agent lacks."""
        if self.host.report is not None and self.host.incarnation != self._sent_to:
            self._sent_to = self.host.incarnation
            for pool_id in self.pools:
                self._queue_pool(pool_id)
        if self._pending_shapes() is not None:
            failed = partial(log.warning, "cannot order prepared containers")
            self.deliveries.queue("shapes", attempt=self._send_shapes, failed=failed)

    # ---- drain

    async def drain_reported(self, *, reconnected: bool) -> None:
        """Store a drain learned from the host, or send the pending one.

        A drain with a higher revision than stored means a restored database: it is learned too.
        `reconnected`: an earlier call may hang on a dead connection and is replaced.

        Raises:
            StoreError: The learned order cannot be stored.
        """
        learned = self.host.drain
        if learned != self._stored_drain:
            now = self.clock.time()
            await self.store.run(learn_drain, self.host.name, learned, now)
            log.info("host reported its drain", draining=learned.draining)
            if self._stored_drain.revision <= learned.revision:
                self._stored_drain = learned  # else a newer order was given meanwhile
        if self.host.drain_pending:
            self._deliver_drain(again=reconnected)

    def order_drain(self, drain: Drain) -> None:
        """Send a stored drain order to the host, and retry until it answers."""
        self._stored_drain = drain
        self.host.order_drain(drain)
        self.host.notify()
        self._deliver_drain()

    async def drain_acknowledged(self, timeout: float) -> None:
        """Wait up to `timeout` seconds until the host has acknowledged its drain orders."""
        task = self.deliveries.get("drain")
        if task is not None:
            await asyncio.wait({task}, timeout=timeout)

    def _deliver_drain(self, *, again: bool = False) -> None:
        if again or self.deliveries.get("drain") is None:
            failed = partial(log.warning, "cannot set its drain")
            self.deliveries.start("drain", attempt=self._send_drain, failed=failed, at_once=False)

    def _remaining_is_known(self, order: Drain) -> bool:
        """Return whether the remaining time of a drain is known.

        After a boot, the clock may differ from the clock by which an earlier run set the deadline.
        """
        return order.deadline is None or order != self._loaded_drain or is_trusted(self.clock)

    async def _send_drain(self) -> None:
        while self.host.drain_pending:
            order = self.host.drain
            if not self._remaining_is_known(order):
                await self.clock.sleep(1.0)
                continue
            await self.host.client.set_drain(order, self.clock.time())
            self.host.acknowledge_drain(order)
            self.host.notify()
            if self.host.report is None:
                return  # its first report shows whether more is pending

    # ---- warm pools

    @property
    def pools(self) -> set[str]:
        """The pools that the host keeps or has orders for."""
        return self.host.desired.pools

    @property
    def overruled_pools(self) -> list[str]:
        """The pools for which the host has a newer order than those of this control plane."""
        return self.host.desired.overruled_pools

    def pool_size(self, pool_id: str) -> int:
        """Return how many standbys of a pool the host must keep."""
        return self.host.desired.pool_size(pool_id)

    def order_pool(
        self, pool_id: str, size: int, spec: SessionSpec | None, claim_signal: str
    ) -> None:
        """Order standbys if that changes the newest order, and send a pending order."""
        now = self.clock.time()
        self.host.desired.order_pool(pool_id, size, spec, claim_signal, now_ms=to_ms(now))
        self._queue_pool(pool_id)

    def _queue_pool(self, pool_id: str) -> None:
        if self._pending_pool(pool_id) is not None:
            self.deliveries.queue(
                "pool",
                pool_id,
                attempt=partial(self._send_pool, pool_id),
                failed=partial(log.warning, "cannot order standbys of a pool", pool=pool_id),
            )

    def _pending_pool(self, pool_id: str) -> StandbyOrder | None:
        return self.host.desired.pending_pool(pool_id) if self._can_send() else None

    async def _send_pool(self, pool_id: str) -> None:
        while (order := self._pending_pool(pool_id)) is not None:
            incarnation = self.host.incarnation
            await self.host.client.set_warm_pool(order)
            if self.host.incarnation == incarnation:  # else the restarted agent gets it, too
                self.host.desired.note_pool_answer(order)

    # ---- prepared containers

    def order_shapes(self, shapes: Shapes) -> None:
        """Order a prepared container of each of these shapes; replaces the previous order."""
        self.host.desired.order_shapes(shapes)
        self.on_change()

    def _pending_shapes(self) -> Shapes | None:
        return self.host.desired.pending_shapes() if self._can_send() else None

    async def _send_shapes(self) -> None:
        """Send the shapes, a hint by which the first start finds a prepared container.

        A rejected order is not repeated, since the shapes are only a hint.
        """
        while (shapes := self._pending_shapes()) is not None:
            incarnation = self.host.incarnation
            try:
                await self.host.client.set_shapes(shapes)
            except AgentRefusedError as error:
                if error.agent_reason is not ErrorReason.UNIMPLEMENTED:  # an older agent
                    log.warning("prepared containers not ordered", error=str(error))
            if self.host.incarnation == incarnation:
                self.host.desired.note_shapes_answer(shapes)

    def _can_send(self) -> bool:
        return self.host.report is not None and not self.host.removed
