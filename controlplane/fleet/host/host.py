"""One host: its state, and the tasks that follow and direct it."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from random import Random

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import RegistryLogin
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.downtime import Downtime
from controlplane.fleet.host.image_room import ImageRoom
from controlplane.fleet.host.images import Images
from controlplane.fleet.host.orders import ClaimReplay, DrainOrders, PoolOrders, Stops
from controlplane.fleet.host.shapes import ShapeOrders
from controlplane.fleet.host.standbys import Standbys
from controlplane.fleet.host.state import HostState
from controlplane.fleet.host.watch import Watch
from controlplane.metrics.agents import FleetMetrics
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.fleet import AgentRow
from controlplane.storage.tables.reports import Reports
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.logging.events import task_context
from tiltyard.runtime.tasks import run_again


@dataclass(frozen=True, slots=True)
class Shared:
    """Dependencies that the hosts of a fleet share."""

    store: Store
    reports: Reports
    dial: Callable[[AgentRow], AgentClient]
    login_for: Callable[[str], Awaitable[RegistryLogin | None]]
    standbys: Standbys
    lost_after: float
    listened: Callable[[], float]
    is_responsive: Callable[[str], bool]
    queue_stop: Callable[[str, str], object]
    clock: Clock
    random: Random
    reach: Reach
    metrics: FleetMetrics


class Host(HostState):
    """Owns the tasks of one host; its data and its view for placement are in `HostState`."""

    def __init__(self, row: AgentRow, shared: Shared, changed: Callable[["Host"], None]) -> None:
        super().__init__(row, shared.dial(row), shared.standbys)
        store = shared.store
        reports = shared.reports
        clock = shared.clock
        random = shared.random
        self._clock = clock
        self._deliveries = Deliveries(row.name, clock, random)
        self.stops = Stops(self, store, reports, self._deliveries, clock=clock, reach=shared.reach)
        self.drain_orders = DrainOrders(self, store, self._deliveries, clock)
        self.pool_orders = PoolOrders(self, self._deliveries, clock)
        self.shape_orders = ShapeOrders(self, self._deliveries)
        self.images = Images(
            self,
            ImageRoom(self),
            self.shape_orders,
            store,
            login_for=shared.login_for,
            is_responsive=partial(shared.is_responsive, row.name),
            clock=clock,
            random=random,
        )
        self.watch = Watch(
            self,
            store,
            reports,
            stops=self.stops,
            drain_orders=self.drain_orders,
            downtime=Downtime(self, store, shared.lost_after, clock),
            claims=ClaimReplay(self, store, reports, self._deliveries, clock),
            clock=clock,
            listened=shared.listened,
            random=random,
            stop_elsewhere=shared.queue_stop,
            metrics=shared.metrics,
            reach=shared.reach,
        )
        self._tasks: list[asyncio.Task[None]] = []
        self.listeners += (
            self.images.on_change,
            self.shape_orders.on_change,
            partial(changed, self),
        )

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow the host until `stop`; an unexpected error ends neither the group nor that."""
        own = task_context(agent=self.name)
        self._tasks = [
            group.create_task(
                run_again(part.run, self._clock), name=f"{what} {self.name}", context=own
            )
            for what, part in (("watch", self.watch), ("images of", self.images))
        ]

    async def stop(self) -> None:
        """Cancel all tasks and close the connection."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.watch.close()
        await self._deliveries.close()
        await self.images.close()
        await self.client.close()
