"""Maintains warm pools: plans how many standbys each host keeps, and orders them from the hosts.

Shares are planned on every change of a pool, tag or application, on every report of a host, and
periodically. A host keeps its share while it is briefly unresponsive or its engine is unavailable:
starting the same standbys elsewhere takes longer. A draining or lost host keeps none.
"""

import asyncio
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from controlplane.domain.errors import StoreError
from controlplane.domain.placement import HostView, Wanted, is_usable, rank_key
from controlplane.domain.standby_shares import PoolHost, room_for, share
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.delivery import FIRST_RETRY
from controlplane.fleet.host.host import Host
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import standby_orders
from controlplane.storage.tables.standby_orders import WantedPool
from controlplane.storage.tables.tags import Tag
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.contract import Identity, SessionSpec
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

GATHER = 0.2  # Seconds for which host reports are batched; changes by callers are planned at once

REST = 4.0
"""Duty cycle: the pause after a round as a multiple of its duration, at most MAX_BACK_OFF, unless
callers change the pools."""

REVIEW_INTERVAL = 2.0  # Seconds between plans without another cause
REREAD_INTERVAL = 60.0  # Seconds between reads of the pools without another cause
PULL_GRACE = 120.0  # Seconds for which hosts keep older standbys while they pull the newest tag

SHORT_AFTER = 5.0
"""Seconds for which a host may lack capacity for its share before it moves to others."""

MAX_BACK_OFF = 5.0


@dataclass(frozen=True, slots=True)
class KeptOnHost:
    """The standbys of a pool on one host; `pool` is None if it was removed."""

    pool_id: str
    pool: WarmPool | None
    size: int
    standbys: int
    ready: int


class StandbyPools:
    """Plans the warm pools of the fleet."""

    def __init__(self, store: Store, fleet: Fleet, *, clock: Clock, random: Random) -> None:
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._random = random
        self._wanted: dict[str, WantedPool] = {}
        self._places: dict[tuple[str, str, str], WarmPool] = {}
        self._newest: dict[str, tuple[Tag, float]] = {}
        """By pool, the newest tag that a host has pulled, and since when."""
        self._unfilled_since: dict[tuple[str, str], float] = {}
        """Since when a host lacks capacity for its share, by pool and agent."""
        self._views: dict[str, HostView | None] = {}
        """The hosts in this round, including the standbys planned so far."""
        self._read_at = float("-inf")
        self._wake = asyncio.Event()
        self._at_once = asyncio.Event()
        fleet.subscribe(lambda _: self._wake.set())

    def look(self) -> None:
        """Read the pools again and plan them, at once."""
        self._read_at = float("-inf")
        self._at_once.set()
        self._wake.set()

    def pool_at(self, account: str, application: str, location: str) -> WarmPool | None:
        """Return the pool of an application in a region, as last read."""
        return self._places.get((account, application, location))

    def ready(self, pool_id: str) -> int:
        """Count the standbys of a pool that can be claimed now."""
        return self._fleet.standbys.ready_of(pool_id, partial(self.can_claim, pool_id))

    def can_claim(self, pool_id: str, agent: str) -> bool:
        """Return whether standbys of a pool can be claimed on an agent's host now.

        A host may report standbys of any pool. They count only if the pool, as last read from the
        database, has the host's region and node pool, and the host has an order to keep some.
        """
        wanted = self._wanted.get(pool_id)
        host = self._fleet.host(agent)
        if wanted is None or host is None or not self._fleet.takes_claims(agent):
            return False
        place = (wanted.pool.location, wanted.application.node_pool)
        if place != (host.row.region, host.row.node_pool):
            return False
        return host.pool_orders.size(pool_id) > 0

    def sizes(self) -> list[tuple[WarmPool, int, int]]:
        """Return each pool with its desired and its claimable number of standbys."""
        return [(each.pool, each.size, self.ready(id_)) for id_, each in self._wanted.items()]

    def ready_hosts(self, account: str, application: str, location: str) -> list[Host]:
        """Return the hosts with a claimable standby of an application in a region."""
        pool = self.pool_at(account, application, location)
        if pool is None:
            return []
        agents = self._fleet.standbys.ready_agents(pool.id)
        hosts = (self._fleet.host(agent) for agent in agents if self.can_claim(pool.id, agent))
        return [host for host in hosts if host is not None]

    def kept_on(self, host: Host) -> list[KeptOnHost]:
        """Return the pools that have, or should have, standbys on a host."""
        standbys = self._fleet.standbys
        name = host.name
        kept = []
        for pool_id in sorted(host.pool_orders.pools | standbys.pools_on(name)):
            size = host.pool_orders.size(pool_id)
            there = standbys.live_on(pool_id, name)
            wanted = self._wanted.get(pool_id)
            if size or there:
                pool = None if wanted is None else wanted.pool
                ready = len(standbys.ready_images(pool_id, name))
                kept.append(KeptOnHost(pool_id, pool, size, there, ready))
        return kept

    async def run(self) -> None:
        """Maintain the pools until cancelled."""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while True:
            self._wake.clear()
            self._at_once.clear()
            began = self._clock.monotonic()
            try:
                await self._round()
                back_off.reset()
            except StoreError as error:
                log.warning("cannot plan the warm pools", error=str(error))
                await back_off.wait()
            else:
                rest = min(REST * (self._clock.monotonic() - began), MAX_BACK_OFF)
                await self._wait(self._wake, REVIEW_INTERVAL)
                await self._wait(self._at_once, max(GATHER, rest))

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        await first_completed(event.wait(), self._clock.sleep(seconds), "standby-pools-look")

    async def _round(self) -> None:
        now = self._clock.monotonic()
        if now - self._read_at >= REREAD_INTERVAL:
            await self._read(now)
        plans: dict[str, dict[str, tuple[int, Tag] | None]] = {}
        self._views.clear()
        for pool_id, wanted in self._wanted.items():
            plans[pool_id] = {}
            application = wanted.application
            allowed = self._fleet.node_pools.allows(
                application.node_pool, application.network_mode
            )
            if wanted.size and allowed:
                plans[pool_id] = self._plan_or_keep(wanted, now)
                await asyncio.sleep(0)  # so that many pools do not delay callers
        for host in self._fleet.hosts:
            for pool_id in host.pool_orders.pools | plans.keys():
                planned = plans.get(pool_id, {}).get(host.name, (0, None))
                if planned is not None:
                    self._order(host, pool_id, *planned)

    def _order(self, host: Host, pool_id: str, size: int, tag: Tag | None) -> None:
        if tag is None:
            host.pool_orders.set(pool_id, 0, None, "")
        else:
            wanted = self._wanted[pool_id]
            spec = _standby_spec(wanted, tag)
            host.pool_orders.set(pool_id, size, spec, wanted.pool.claim_signal)

    async def _read(self, now: float) -> None:
        self._read_at = now  # a change during the read causes another one
        try:
            wanted = await standby_orders.wanted(self._store, self._wanted)
        except StoreError:
            self._read_at = float("-inf")
            raise
        self._wanted = {each.pool.id: each for each in wanted}
        self._newest = {pool: seen for pool, seen in self._newest.items() if pool in self._wanted}
        self._unfilled_since = {
            k: since for k, since in self._unfilled_since.items() if k[0] in self._wanted
        }
        self._places = {
            (each.pool.account, each.pool.application, each.pool.location): each.pool
            for each in wanted
            if each.size
        }

    def _plan_or_keep(self, wanted: WantedPool, now: float) -> dict[str, tuple[int, Tag] | None]:
        """Plan a pool; after an unexpected error its orders stay, and other pools are planned."""
        try:
            return self._plan(wanted, now)
        except Exception:
            log.exception("cannot plan a warm pool: internal error", pool=wanted.pool.id)
            return dict.fromkeys((host.name for host in self._fleet.hosts), None)

    def _plan(self, wanted: WantedPool, now: float) -> dict[str, tuple[int, Tag] | None]:
        """Plan the share and tag of a pool on each host; None leaves the order unchanged.

        Standbys run the newest tag that a host could start. A host that has not pulled it keeps
        its share of an older tag for PULL_GRACE, then until others have as many ready.
        """
        pool_id = wanted.pool.id
        place = (wanted.pool.location, wanted.application.node_pool)
        hosts = [host for host in self._fleet.hosts_of(*place) if self._keeps_share(host)]
        if self._fleet.unreported.count([place], taking=True):
            return dict.fromkeys((host.name for host in hosts), None)
        held = {host.name: host.pool_orders.size(pool_id) for host in hosts}
        views = self._views_of(hosts)
        plan: dict[str, tuple[int, Tag] | None] = dict.fromkeys(held.keys() - views.keys(), None)
        newest = self._newest_startable(wanted.tags, views.values())
        if newest is None:
            return plan
        fresh = [view for view in views.values() if newest.image in view.host.images]
        size = left = max(0, wanted.size - sum(held[name] for name in plan))
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
        shares = self._share(
            wanted, newest, fresh, held=held, size=max(0, left) if is_patient else size
        )
        return plan | {name: (count, newest) for name, count in shares.items()}

    def _share(
        self,
        wanted: WantedPool,
        tag: Tag,
        views: Sequence[HostView],
        *,
        held: Mapping[str, int],
        size: int,
    ) -> dict[str, int]:
        pool_id = wanted.pool.id
        application = wanted.application
        present = {v.agent: self._fleet.standbys.live_on(pool_id, v.agent) for v in views}
        mine = {name: held[name] for name in present}
        if sum(mine.values()) == size and all(present[n] >= mine[n] for n in mine):
            return mine  # without computing the room of the hosts
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

    def _keeps_share(self, host: Host) -> bool:
        is_responsive = self._fleet.report_age(host) <= self._fleet.unreachable_after
        return is_responsive and not host.draining and host.lost is None


def _newest_tag(tags: Iterable[Tag], views: Collection[HostView]) -> Tag | None:
    pulled = (tag for tag in tags if any(tag.image in view.host.images for view in views))
    return next(pulled, None)


def _standby_spec(wanted: WantedPool, tag: Tag) -> SessionSpec:
    pool = wanted.pool
    identity = Identity(
        account=pool.account,
        session_id=pool.id,
        application=pool.application,
        tag=tag.name,
        location=pool.location,
        labels=pool.labels,
    )
    return replace(wanted.application.spec(identity, tag.image), args=pool.args, env=pool.env)
