"""Sends stop orders when their transactions have committed."""

from collections.abc import Callable, Collection

from controlplane.fleet.host.host import Host
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.sessions.stop_orders import all_pending_stops
from tiltyard.runtime.clock import Clock


class OrderedStops:
    """Passes orders to hosts that are followed.

    A host that is not followed gets its orders after its next snapshot. The age of the last
    report does not matter: a stream that continues brings no snapshot.
    """

    def __init__(self, store: Store, host_of: Callable[[str], Host | None], clock: Clock) -> None:
        """`host_of` returns the host of an agent."""
        self._store = store
        self._host_of = host_of
        self._follower = Follower("stop orders", self._apply, clock)
        store.changes.subscribe({Topic.STOP_ORDER}, self._follower.note)

    async def close(self) -> None:
        """Stop sending orders."""
        await self._follower.close()

    async def _apply(self, changed: Collection[Change]) -> None:
        ordered = [change.key for change in changed]
        if () in ordered:
            ordered = [*await self._store.read(all_pending_stops)]
        for agent, internal_id in ordered:
            host = self._host_of(agent)
            if host is not None and host.watch.is_following:
                host.stops.queue_stop(internal_id)
