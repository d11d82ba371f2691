"""Plans how many standbys of a pool each host keeps, and of which tag.

A host keeps its share while it is briefly unresponsive or its engine is unavailable: starting the
same standbys elsewhere takes longer. A draining or lost host keeps none.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WantedPool
from controlplane.domain.placement.placement import HostView, Wanted, is_usable, rank_key
from controlplane.domain.placement.standby_shares import PoolHost, room_for, share
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

PULL_GRACE = 120.0  # Seconds for which hosts keep older standbys while they pull the newest tag

SHORT_AFTER = 5.0
"""Seconds for which a host may lack capacity for its share before it moves to others."""

Shares = dict[str, tuple[int, Tag] | None]
"""The share of each agent in a pool, and its tag; None leaves the order unchanged."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The shares of hosts in a pool. `is_filled`: they have these orders and all standbys."""

    shares: Shares = field(default_factory=dict)
    is_filled: bool = False


class StandbyPlanner:
    """Plans the pools of a round in sequence: each gets the room that earlier pools leave."""

    def __init__(self, fleet: Fleet, clock: Clock) -> None:
        self._fleet = fleet
        self._clock = clock
        self._newest: dict[str, tuple[Tag, float]] = {}
        """The newest tag of each pool that a host has pulled, and the time since then."""
        self._unfilled_since: dict[tuple[str, str], float] = {}
        """The time since which a host lacks capacity for its share, by pool and agent."""
        self._views: dict[str, HostView | None] = {}
        """The hosts in this round, including the standbys planned so far."""

    def begin_round(self) -> None:
        """Look at the hosts again."""
        self._views.clear()

    def keep_only(self, pools: Collection[str]) -> None:
        """Forget all pools except these."""
        self._newest = {pool: seen for pool, seen in self._newest.items() if pool in pools}
        self._unfilled_since = {k: t for k, t in self._unfilled_since.items() if k[0] in pools}

    def plan(self, wanted: WantedPool, now: float) -> Plan:
        """Plan a pool; after an unexpected error its orders stay, and other pools are planned."""
        try:
            return self._plan(wanted, now)
        except Exception:
            log.exception("cannot plan a warm pool: internal error", pool=wanted.pool.id)
            return Plan(dict.fromkeys((host.name for host in self._fleet.hosts), None))

    def _plan(self, wanted: WantedPool, now: float) -> Plan:
        """Plan the share and tag of a pool on each host; None leaves the order unchanged.

        Standbys run the newest tag that a host could start. A host that has not pulled it keeps
        its share of an older tag for PULL_GRACE, then until others have as many ready.
        """
        pool_id = wanted.pool.id
        place = place_of(wanted)
        hosts = [host for host in self._fleet.hosts_of(*place) if keeps_share(self._fleet, host)]
        if self._fleet.unreported.count([place], taking=True):
            return Plan(dict.fromkeys((host.name for host in hosts), None))
        held = {host.name: host.orders.pool_size(pool_id) for host in hosts}
        views = self._views_of(hosts)
        plan: Shares = dict.fromkeys(held.keys() - views.keys(), None)
        newest = self._newest_startable(wanted.tags, views.values())
        if newest is None:
            return Plan(plan)
        fresh = [view for view in views.values() if newest.image in view.host.images]
        size = max(0, wanted.size - sum(held[name] for name in plan))
        left = size
        before, since = self._newest.get(pool_id, (None, 0.0))
        if before != newest:
            since = now
            self._newest[pool_id] = newest, now
        is_patient = now - since < PULL_GRACE
        if not is_patient:
            ready = self._fleet.standbys.ready_images
            left -= sum(ready(pool_id, view.agent).count(newest.image) for view in fresh)
        for name in sorted(views):
            older = _newest_tag(wanted.tags, [views[name]])
            if older is not None and newest.image not in views[name].host.images:
                count = min(held[name], max(0, left))
                plan[name] = count, older
                left -= count
        size = max(0, left) if is_patient else size
        mine = {view.agent: held[view.agent] for view in fresh}
        present = {agent: self._fleet.standbys.live_on(pool_id, agent) for agent in mine}
        is_filled = sum(mine.values()) == size and all(present[n] >= mine[n] for n in mine)
        shares = mine  # without computing the room of the hosts
        if not is_filled:
            shares = self._share(wanted, newest, fresh, mine=mine, present=present, size=size)
        newest_shares: Shares = {name: (count, newest) for name, count in shares.items()}
        return Plan(plan | newest_shares, is_filled and not plan)

    def _share(
        self,
        wanted: WantedPool,
        tag: Tag,
        views: Sequence[HostView],
        *,
        mine: Mapping[str, int],
        present: Mapping[str, int],
        size: int,
    ) -> dict[str, int]:
        """Share a number among hosts, of which each has `mine` to keep, and some `present`."""
        pool_id = wanted.pool.id
        application = wanted.application
        each = Wanted(tag.image, application.reservation, application.ports)
        hosts = []
        strategy = self._fleet.node_pools.strategy(application.node_pool)
        for view in views:
            name = view.agent
            room = room_for(view, each, self._fleet.unresponsive_after)
            cannot_fill = self._cannot_fill((pool_id, name), mine[name] - present[name] > room)
            rank = rank_key(view, strategy)
            hosts.append(PoolHost(name, mine[name], present[name], room, rank, cannot_fill))
        shares = share(size, hosts, strategy)
        for view in views:  # other pools get the rest
            lacking = max(0, shares.get(view.agent, 0) - present[view.agent])
            held_by_all = sum([each.reservation] * lacking, view.held)
            self._views[view.agent] = replace(
                view, held=held_by_all, in_flight=view.in_flight + lacking
            )
        return shares

    def _cannot_fill(self, key: tuple[str, str], is_lacking: bool) -> bool:
        now = self._clock.monotonic()
        if not is_lacking:
            self._unfilled_since.pop(key, None)
            return False
        return now - self._unfilled_since.setdefault(key, now) >= SHORT_AFTER

    def _views_of(self, hosts: Collection[Host]) -> dict[str, HostView]:
        """Return the views of the hosts that have reported, by name; each is made once a round."""
        found = {}
        for host in hosts:
            if host.name not in self._views:
                self._views[host.name] = self._fleet.view(host)
            view = self._views[host.name]
            if view is not None:
                found[host.name] = view
        return found

    def _newest_startable(self, tags: Sequence[Tag], views: Collection[HostView]) -> Tag | None:
        """Return the newest tag that a host could start now, else the newest pulled one."""
        usable = [view for view in views if is_usable(view, self._fleet.unresponsive_after)]
        return _newest_tag(tags, usable) or _newest_tag(tags, views)


def keeps_share(fleet: Fleet, host: Host) -> bool:
    """Return whether a host keeps its share of pools."""
    is_responsive = fleet.report_age(host) <= fleet.unreachable_after
    return is_responsive and not host.state.draining and host.state.lost is None


def place_of(wanted: WantedPool) -> tuple[str, str]:
    """Return the region and node pool of a pool."""
    return wanted.pool.location, wanted.application.node_pool


def _newest_tag(tags: Iterable[Tag], views: Collection[HostView]) -> Tag | None:
    pulled = (tag for tag in tags if any(tag.image in view.host.images for view in views))
    return next(pulled, None)
