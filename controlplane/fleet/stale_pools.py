"""Which warm pools need another plan: those of which a fact has changed since the last one.

The facts are the pool with its application, tags and node pool; its standbys; which hosts of its
place there are, with their health and images (the revision of the place), whether they are
responsive, and what they are to keep by the report of the host. A pool that lacks standbys also
depends on what the hosts of its place have left, and on how long it has lacked them: it is planned
whenever one of them has reported, and periodically.
"""

from collections.abc import Collection, Iterable, Mapping

from controlplane.domain.applications.privileges import NO_PRIVILEGES
from controlplane.domain.applications.warm_pools import WantedPool
from controlplane.domain.placement.placement import Strategy
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.standby_plan import keeps_share, place_of
from controlplane.fleet.unreported import Place

_Facts = tuple[bool, bool]
"""Whether a host keeps its shares, and whether it is responsive."""


class StalePools:
    """Collects the pools to plan."""

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet
        self._stale: set[str] = set()
        self._moved: set[str] = set()
        self._lacking: set[str] = set()
        self._rows: Mapping[str, tuple[WantedPool, bool, Strategy]] = {}
        self._at: dict[Place, list[str]] = {}  # The pools of each place
        self._revisions: dict[Place, int] = {}
        self._facts: dict[str, _Facts] = {}

    def note_rows(self, rows: Mapping[str, tuple[WantedPool, bool, Strategy]]) -> None:
        """Note the pools, whether each is wanted, and the strategy of its node pool."""
        before = self._rows
        self._rows = rows
        self._moved |= before.keys() - rows.keys()
        self._moved |= {pool for pool, row in rows.items() if before.get(pool) != row}
        self._at = {}
        for pool_id, row in rows.items():
            self._at.setdefault(place_of(row[0]), []).append(pool_id)

    def note_all(self) -> None:
        """Note that anything may have changed."""
        self._moved |= self._rows.keys()

    def note_standbys(self, pools: Iterable[str]) -> None:
        """Note that standbys of some pools came or went."""
        self._stale.update(pools)

    def note_plan(self, pool_id: str, *, is_filled: bool) -> None:
        """Note the last plan of a pool."""
        if is_filled:
            self._lacking.discard(pool_id)
        else:
            self._lacking.add(pool_id)

    def note_host(self, host: Host) -> None:
        """Note that a host may have changed, or that time has passed for it."""
        if host.state.removed:
            self._facts.pop(host.name, None)
            return  # the revision of its place has changed
        pools = self._at.get((host.state.row.region, host.state.row.node_pool), ())
        facts = (
            keeps_share(self._fleet, host),
            self._fleet.report_age(host) <= self._fleet.unresponsive_after,
        )
        if self._facts.get(host.name) != facts:
            self._facts[host.name] = facts
            self._stale.update(pools)
        self._stale.update(self._lacking.intersection(pools))
        for pool_id in host.orders.overruled_pools:
            if pool_id in pools:
                self._stale.add(pool_id)
            else:
                host.orders.order_pool(pool_id, 0, None, "")

    def pop(self) -> tuple[list[str], Collection[str]]:
        """Return the pools to plan, and those that hosts of other places may have orders for.

        Pools that are gone are only among the second. Of a place with a pool to plan, all that
        lack standbys are planned: each gets what the others leave.
        """
        for place in self._at:
            revision = self._fleet.revision_of(*place)
            if self._revisions.get(place) != revision:
                self._revisions[place] = revision
                self._stale.update(self._at[place])
        stale = self._stale | self._moved
        for pools in self._at.values():
            if not stale.isdisjoint(pools):
                stale |= self._lacking.intersection(pools)
        moved = self._moved
        self._stale = set()
        self._moved = set()
        self._lacking &= self._rows.keys()
        return [pool_id for pool_id in self._rows if pool_id in stale], moved


def row_of(fleet: Fleet, wanted: WantedPool) -> tuple[WantedPool, bool, Strategy]:
    """Return a pool, whether it is wanted, and the strategy of its node pool."""
    application = wanted.application
    denied = fleet.node_pools.denied(application.node_pool, application.privileges)
    is_wanted = bool(wanted.size) and denied == NO_PRIVILEGES
    return wanted, is_wanted, fleet.node_pools.strategy(application.node_pool)
