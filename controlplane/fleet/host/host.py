"""One host: its state, and the tasks that follow and direct it."""

import asyncio

from controlplane.domain.hosts.agents import Agent
from controlplane.fleet.host.delivery import Deliveries
from controlplane.fleet.host.images import Images
from controlplane.fleet.host.orders import Orders
from controlplane.fleet.host.state import HostState
from controlplane.fleet.host.stops import Stops
from controlplane.fleet.host.watch import Watch
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import task_context
from tiltyard.runtime.tasks import run_again


class Host:
    """Owns the tasks of one host; `state` owns its data and its view for placement."""

    def __init__(
        self,
        state: HostState,
        *,
        deliveries: Deliveries,
        stops: Stops,
        orders: Orders,
        images: Images,
        watch: Watch,
        clock: Clock,
    ) -> None:
        self.name = state.name
        self.state = state
        self.stops = stops
        self.orders = orders
        self.images = images
        self.watch = watch
        self._deliveries = deliveries
        self._clock = clock
        self._tasks: list[asyncio.Task[None]] = []

    def apply_row(self, row: Agent) -> None:
        """Apply the agent's row as it is in the database, and send a newer drain order."""
        is_drain_new = row.drain != self.state.row.drain
        self.state.note_row(row)
        if row.drain.revision > self.state.drain.revision:
            self.orders.order_drain(row.drain)
        elif is_drain_new:
            self.state.notify()  # the host itself has reported it

    def start(self, group: asyncio.TaskGroup) -> None:
        """Follow the host until `stop`; an unexpected error ends neither a task nor the group."""
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
        await self.state.client.close()
