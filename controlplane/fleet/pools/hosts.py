"""The hosts of the fleet as warm pools see them: which may keep standbys, and what they have.

A host keeps its share while it is silent for a short time, or its engine is away: to start the
same standbys elsewhere takes longer than that. One that is drained or given up keeps none.
"""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from controlplane.domain.placement import HostView, Wanted
from controlplane.domain.standby_shares import room_for
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.pools.plan import PoolHost
from tiltyard.contract import Resources

SHORT_AFTER = 5.0
"""Seconds for which a host may lack room for its share before others are to make it."""


class PoolHosts:
    """Shows hosts at one moment after another, and knows for how long they lack room."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._began_at: float | None = None
        self._now = 0.0
        self._lacking: dict[str, dict[str, tuple[int, Resources]]] = {}
        self._short_since: dict[tuple[str, str], float] = {}

    def look(self, now: float, shares: Iterable[tuple[str, str, int, Resources]]) -> None:
        """Show the fleet as it is now.

        `shares` are those so far: pool, agent, how many, and what each of them takes.
        """
        self._began_at, self._now = self._began_at or now, now
        self._lacking = defaultdict(dict)
        for pool_id, agent, size, each in shares:
            count = size - self._fleet.standbys.live_on(pool_id, agent)
            if count > 0:
                self._lacking[agent][pool_id] = count, each

    def of(self, pool_id: str, region: str, node_pool: str) -> list[PoolHost]:
        """Give the hosts of a region and node pool that may keep what they have of a pool."""
        hosts = self._fleet.hosts_of(region, node_pool)
        return [self._pool_host(pool_id, host) for host in hosts if self._stays(host)]

    def note(self, pool_id: str, host: PoolHost, size: int, wanted: Wanted) -> None:
        """Note whether a host has room for all of its share."""
        key, silence = (pool_id, host.agent), self._fleet.placement_silence
        lacking = size - host.present
        if host.view and lacking > 0 and lacking > room_for(host.view, wanted, silence):
            self._short_since.setdefault(key, self._now)
        else:
            self._short_since.pop(key, None)

    def _pool_host(self, pool_id: str, host: Host) -> PoolHost:
        name, standbys = host.name, self._fleet.standbys
        since = self._short_since.get((pool_id, name), self._now)
        return PoolHost(
            agent=name,
            view=self._view(pool_id, host),
            present=standbys.live_on(pool_id, name),
            ready_images=standbys.ready_images(pool_id, name),
            is_short=self._now - since >= SHORT_AFTER,
        )

    def _view(self, pool_id: str, host: Host) -> HostView | None:
        """Show a host without the room that its shares of other pools are still to take."""
        view = self._fleet.view(host)
        if view is None:
            return None
        held, count = view.held, view.in_flight
        for other, (lacking, each) in self._lacking.get(host.name, {}).items():
            if other != pool_id:
                count += lacking
                held += Resources(
                    each.nano_cpus * lacking, each.memory_bytes * lacking, each.gpus * lacking
                )
        return replace(view, held=held, in_flight=count)

    def _stays(self, host: Host) -> bool:
        """Return whether a host may keep its share; it does while it has not reported yet."""
        if host.draining or host.lost_ms is not None:
            return False
        silent = self._fleet.silent_seconds(host)
        if host.reported_at is None:
            silent = self._now - (self._began_at or self._now)
        return silent <= self._fleet.unreachable_after
