"""Maintains warm pools: has them planned, and orders the standbys from the hosts.

A pool is planned when a fact of its plan has changed (`stale_pools`), and at least once per
REREAD_INTERVAL. What a plan is: `standby_plan`.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import partial
from random import Random

from controlplane.domain.applications.pool_fill import PoolFill, PoolFills
from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WantedPool, WarmPool
from controlplane.domain.errors import StoreError
from controlplane.domain.placement.placement import Strategy
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.delivery import FIRST_RETRY
from controlplane.fleet.host.host import Host
from controlplane.fleet.stale_pools import StalePools, row_of
from controlplane.fleet.standby_plan import Plan, StandbyPlanner, place_of
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications import standby_orders
from controlplane.storage.tables.applications.warm_pools import note_fills
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

REVIEW_INTERVAL = 2.0  # Seconds between two looks at what changes by time alone
REREAD_INTERVAL = 60.0  # Seconds between reads and plans of all pools without another cause

MAX_BACK_OFF = 5.0

_TOPICS = (Topic.POOL, Topic.TAG, Topic.APPLICATION, Topic.ACCOUNT, Topic.NODE_POOL)
"""The topics on which the plan of a pool depends; a removed account has no pools."""

HOSTS_IN_A_STEP = 100  # Hosts that get their orders in one step of the event loop


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
        self._rows: dict[str, tuple[WantedPool, bool, Strategy]] = {}
        self._planner = StandbyPlanner(fleet, clock)
        self._stale = StalePools(fleet)
        self._fills = PoolFills()
        self._reported: dict[str, Host] = {}  # Since the last round, by agent
        self._reviewed_at = float("-inf")
        self._read_at = float("-inf")
        self._whole_at = float("-inf")
        self._wake = asyncio.Event()
        self._at_once = asyncio.Event()
        fleet.subscribe(self._note_host)
        store.changes.subscribe(_TOPICS, lambda _: self._read_again())

    def _note_host(self, host: Host) -> None:
        self._reported[host.name] = host
        self._wake.set()

    def _read_again(self) -> None:
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
        if place != (host.state.row.region, host.state.row.node_pool):
            return False
        return host.orders.pool_size(pool_id) > 0

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
        for pool_id in sorted(host.orders.pools | standbys.pools_on(name)):
            size = host.orders.pool_size(pool_id)
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
        """Plan the pools of which a fact has changed, and order what has changed by that."""
        now = self._clock.monotonic()
        if now - self._read_at >= REREAD_INTERVAL:
            await self._read(now)
        if now - self._whole_at >= REREAD_INTERVAL:
            self._whole_at = now
            self._stale.note_all()
        self._stale.note_standbys(self._fleet.standbys.pop_changed())
        reported = self._reported
        self._reported = {}
        if now - self._reviewed_at >= REVIEW_INTERVAL:
            self._reviewed_at = now
            reported |= {host.name: host for host in self._fleet.hosts}
        for host in reported.values():
            self._stale.note_host(host)
        stale, moved = self._stale.pop()
        plans = dict.fromkeys(moved, Plan())
        self._planner.begin_round()
        for pool_id in stale:
            plans[pool_id] = self._plan(pool_id, now)
            await asyncio.sleep(0)  # so that many pools do not delay callers
        for pool_id, plan in plans.items():
            if pool_id in moved:
                await self._order_everywhere(pool_id, plan)
            else:
                for host in self._fleet.hosts_of(*place_of(self._wanted[pool_id])):
                    self._order_planned(host, pool_id, plan)
        await self._note_fills({*stale, *moved, *self._fills.pending}, now)

    async def _note_fills(self, pools: Collection[str], now: float) -> None:
        """Write which of these pools have become full or short."""
        found = [self._fill_of(pool_id, now) for pool_id in sorted(pools)]
        fills = [fill for fill in found if fill is not None]
        if not fills:
            return
        await self._store.run(note_fills, fills, self._clock.time())
        for fill in fills:
            self._fills.note_written(fill, self._wanted[fill.pool_id].revision)

    def _fill_of(self, pool_id: str, now: float) -> PoolFill | None:
        """Return whether a pool is full if that is news; None while hosts have not reported."""
        wanted = self._wanted.get(pool_id)
        if wanted is None or not wanted.size:
            self._fills.forget(pool_id)
            return None
        if self._fleet.unreported.count([place_of(wanted)], taking=True):
            return None
        size = wanted.size
        ready = self.ready(pool_id)
        return self._fills.look(pool_id, wanted.revision, size=size, ready=ready, now=now)

    def _plan(self, pool_id: str, now: float) -> Plan:
        wanted, is_wanted, _ = self._rows[pool_id]
        plan = self._planner.plan(wanted, now) if is_wanted else Plan(is_filled=True)
        self._stale.note_plan(pool_id, is_filled=plan.is_filled)
        return plan

    async def _order_everywhere(self, pool_id: str, plan: Plan) -> None:
        """Order a pool from the hosts of its plan, and nothing of it from all others."""
        for number, host in enumerate(self._fleet.hosts):
            if host.name in plan.shares or pool_id in host.orders.pools:
                self._order_planned(host, pool_id, plan)
            if number % HOSTS_IN_A_STEP == 0:
                await asyncio.sleep(0)

    def _order_planned(self, host: Host, pool_id: str, plan: Plan) -> None:
        planned = plan.shares.get(host.name, (0, None))
        if planned is not None:
            self._order(host, pool_id, *planned)

    def _order(self, host: Host, pool_id: str, size: int, tag: Tag | None) -> None:
        if tag is None:
            host.orders.order_pool(pool_id, 0, None, "")
        else:
            wanted = self._wanted[pool_id]
            spec = _standby_spec(wanted, tag)
            host.orders.order_pool(pool_id, size, spec, wanted.pool.claim_signal)

    async def _read(self, now: float) -> None:
        self._read_at = now  # a change during the read causes another one
        await self._fleet.caught_up()  # with the rules of node pools
        try:
            wanted = await standby_orders.wanted(self._store, self._wanted)
        except StoreError:
            self._read_at = float("-inf")
            raise
        self._wanted = {each.pool.id: each for each in wanted}
        self._planner.keep_only(self._wanted.keys())
        self._rows = {pool_id: row_of(self._fleet, each) for pool_id, each in self._wanted.items()}
        self._stale.note_rows(self._rows)
        self._places = {
            (each.pool.account, each.pool.application, each.pool.location): each.pool
            for each in wanted
            if each.size
        }


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
