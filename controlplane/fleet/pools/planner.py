"""Maintains warm pools: orders standbys from hosts, and updates the orders when shares change.

The shares of hosts are planned again whenever a pool, a tag or an application was changed,
whenever hosts reported something, and periodically, since unresponsive hosts report nothing. Only
changes are written, with a higher revision, and repeated until the host acknowledges them.
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from controlplane.domain.contract import (
    PoolOnHost,
    StandbyOrder,
)
from controlplane.domain.errors import StoreError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.delivery import FIRST_RETRY
from controlplane.fleet.host.host import Host
from controlplane.fleet.pools.hosts import PoolHosts
from controlplane.fleet.pools.plan import (
    Planned,
    PoolHost,
    fingerprint,
    newest_tag,
    plan_pool,
    standby_spec,
    wanted_of,
)
from controlplane.storage.tables.standby_orders import (
    NewOrder,
    OrderRow,
    StandbyOrderStore,
    WantedPool,
)
from controlplane.storage.tables.tags import Tag
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.contract import Resources, SessionSpec
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.first_completed import comes_first
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

GATHER = 0.2
"""Seconds for which reports of hosts are gathered; what callers change is looked at at once."""

REST = 4.0
"""Duty cycle: the pause after a round as a multiple of its duration, unless callers change it. At
most MAX_BACK_OFF, since the database or the machine may have stalled."""

REVIEW_INTERVAL = 2.0
"""Seconds after which everything is planned again without a reason."""

REREAD_INTERVAL = 60.0
"""Seconds after which the pools are read again without a reason."""

PULL_GRACE = 120.0
"""Seconds for which hosts keep older standbys while they pull the tag that another has by now."""

MAX_BACK_OFF = 5.0

_Key = tuple[str, str]
"""A pool's id and the name of an agent."""

_UNKNOWN = PoolOnHost(0, 0)


@dataclass(frozen=True, slots=True)
class KeptOnHost:
    """What a host keeps of a pool; `pool` is None for one that is gone."""

    pool_id: str
    pool: WarmPool | None
    size: int
    standbys: int
    ready: int


@dataclass(frozen=True, slots=True)
class _Wish:
    """The share of a pool on a host; `text` is the same for the same standbys."""

    size: int = 0
    spec: SessionSpec | None = None
    claim_signal: str = ""
    text: str = ""


class StandbyPools:
    """Owns the orders to the hosts of the fleet."""

    def __init__(
        self, store: StandbyOrderStore, fleet: Fleet, *, clock: Clock, random: Random
    ) -> None:
        """Listen to `fleet` for hosts that report."""
        self._store = store
        self._fleet = fleet
        self._clock = clock
        self._random = random
        self._pool_hosts = PoolHosts(fleet)
        self._wanted: dict[str, WantedPool] = {}
        self._places: dict[tuple[str, str, str], WarmPool] = {}
        self._specs: dict[tuple[str, Tag], tuple[SessionSpec, str]] = {}
        self._rows: dict[_Key, OrderRow] | None = None
        self._newest: dict[str, tuple[Tag | None, float]] = {}
        self._hosts: dict[str, Host] = {}
        """Those of the fleet when this round began."""
        self._read_at = float("-inf")
        self._wake, self._at_once = asyncio.Event(), asyncio.Event()
        fleet.subscribe(lambda _: self._wake.set())

    def look(self) -> None:
        """Read what is wanted, and have the hosts told, at once."""
        self._read_at = float("-inf")
        self._at_once.set()
        self._wake.set()

    def pool_at(self, account: str, application: str, location: str) -> WarmPool | None:
        """Give the pool of an application in a region, as it was read last."""
        return self._places.get((account, application, location))

    def ready(self, pool_id: str) -> int:
        """Count the standbys of a pool that can be claimed now."""
        return self._fleet.standbys.ready_of(pool_id, self._fleet.takes_claims)

    def sizes(self) -> list[tuple[WarmPool, int, int]]:
        """Return each pool with its desired number of standbys, and how many can be claimed."""
        return [(each.pool, each.size, self.ready(id_)) for id_, each in self._wanted.items()]

    def ready_hosts(self, account: str, application: str, location: str) -> list[Host]:
        """Give the hosts on which a standby of an application in a region can be claimed now."""
        pool = self.pool_at(account, application, location)
        agents = [] if pool is None else self._fleet.standbys.ready_agents(pool.id)
        hosts = (self._fleet.host(agent) for agent in agents if self._fleet.takes_claims(agent))
        return [host for host in hosts if host is not None]

    def kept_on(self, agent: str) -> list[KeptOnHost]:
        """Return the pools of which a host has or should have standbys."""
        rows, standbys = self._rows or {}, self._fleet.standbys
        sizes = {pool: row.size for (pool, name), row in rows.items() if name == agent}
        kept = []
        for pool_id in sorted({pool for pool in sizes if sizes[pool]} | standbys.pools_on(agent)):
            wanted = self._wanted.get(pool_id)
            there = standbys.live_on(pool_id, agent)
            ready = len(standbys.ready_images(pool_id, agent))
            pool = None if wanted is None else wanted.pool
            kept.append(KeptOnHost(pool_id, pool, sizes.get(pool_id, 0), there, ready))
        return kept

    async def run(self) -> None:
        """Keep the pools until cancelled."""
        back_off = BackOff(self._clock, self._random, first=FIRST_RETRY, longest=MAX_BACK_OFF)
        while True:
            self._wake.clear()
            self._at_once.clear()
            began = self._clock.monotonic()
            try:
                await self._round()
                back_off.reset()
            except StoreError as error:
                log.warning("cannot keep the warm pools", error=str(error))
                await back_off.wait()
            else:
                rest = min(REST * (self._clock.monotonic() - began), MAX_BACK_OFF)
                await self._wait(self._wake, REVIEW_INTERVAL)
                await self._wait(self._at_once, max(GATHER, rest))

    async def _wait(self, event: asyncio.Event, seconds: float) -> None:
        await comes_first(event.wait(), self._clock.sleep(seconds), "standby-pools-look")

    async def _round(self) -> None:
        if self._rows is None:
            self._rows = {(row.pool, row.agent): row for row in await self._store.all()}
        now = self._clock.monotonic()
        if now - self._read_at >= REREAD_INTERVAL:
            await self._read(now)
        self._hosts = {host.name: host for host in self._fleet.hosts}
        self._pool_hosts.look(now, self._shares(self._rows))
        wishes: dict[_Key, _Wish | None] = {}
        for wanted in self._wanted.values():
            application = wanted.application
            allowed = self._fleet.node_pools.allows(
                application.node_pool, application.network_mode
            )
            if wanted.size and allowed:
                wishes |= self._plan(self._rows, wanted)
                await asyncio.sleep(0)  # so that many pools do not delay callers
        new = list(_new_orders(self._rows, wishes, self._hosts))
        if new:
            for row in await self._store.order(new, unix_ms(self._clock)):
                self._rows[row.pool, row.agent] = row
        self._send(self._rows, wishes)
        await self._forget_done(self._rows)

    async def _read(self, now: float) -> None:
        """Read what is wanted; what changes meanwhile is read again."""
        self._read_at = now
        try:
            wanted = await self._store.wanted(self._wanted)
        except StoreError:
            self._read_at = float("-inf")
            raise
        before, self._wanted = self._wanted, {each.pool.id: each for each in wanted}
        self._specs = {
            (pool, tag): spec
            for (pool, tag), spec in self._specs.items()
            if _run_the_same(before.get(pool), self._wanted.get(pool), tag)
        }
        self._newest = {pool: seen for pool, seen in self._newest.items() if pool in self._wanted}
        self._places = {
            (each.pool.account, each.pool.application, each.pool.location): each.pool
            for each in wanted
            if each.size
        }

    def _shares(self, rows: dict[_Key, OrderRow]) -> Iterator[tuple[str, str, int, Resources]]:
        for (pool_id, agent), row in rows.items():
            wanted = self._wanted.get(pool_id)
            if wanted is not None and row.size:
                yield pool_id, agent, row.size, wanted.application.reservation

    def _plan(self, rows: dict[_Key, OrderRow], wanted: WantedPool) -> dict[_Key, _Wish | None]:
        """Return the share of a pool on each host; None where the order stays."""
        pool_id, node_pool = wanted.pool.id, wanted.application.node_pool
        hosts = self._pool_hosts.of(pool_id, wanted.pool.location, node_pool)
        hosts = [host for host in hosts if self._can_keep(host.agent)]
        held = {host.agent: self._held(rows, pool_id, host.agent) for host in hosts}
        plan = plan_pool(
            wanted,
            hosts,
            held,
            strategy=self._fleet.node_pools.strategy(node_pool),
            max_silence=self._fleet.placement_silence,
            patient=self._is_patient(wanted, hosts),
        )
        for host in hosts:
            planned = plan.get(host.agent)
            if planned is not None and planned.tag is not None:
                each = wanted_of(wanted, planned.tag.image)
                self._pool_hosts.note(pool_id, host, planned.size, each)
        return {(pool_id, agent): self._wish(wanted, planned) for agent, planned in plan.items()}

    def _can_keep(self, agent: str) -> bool:
        """Return whether a host keeps standbys; one that has just joined gets its order later."""
        host = self._hosts.get(agent)
        return host is not None and not host.pool_orders.is_unsupported

    def _is_patient(self, wanted: WantedPool, hosts: list[PoolHost]) -> bool:
        """Return whether hosts that have not pulled the newest tag may still be about to."""
        newest = newest_tag(wanted.tags, hosts, self._fleet.placement_silence)
        now, (tag, since) = self._clock.monotonic(), self._newest.get(wanted.pool.id, (None, 0.0))
        if tag != newest:
            since = now
            self._newest[wanted.pool.id] = newest, now
        return now - since < PULL_GRACE

    def _wish(self, wanted: WantedPool, planned: Planned) -> _Wish | None:
        if planned.tag is None:
            return None if planned.size else _Wish()
        key, signal = (wanted.pool.id, planned.tag), wanted.pool.claim_signal
        if key not in self._specs:
            spec = standby_spec(wanted, planned.tag)
            self._specs[key] = spec, fingerprint(spec, signal)
        spec, text = self._specs[key]
        return _Wish(planned.size, spec, signal, text)

    def _held(self, rows: dict[_Key, OrderRow], pool_id: str, agent: str) -> int:
        """Give the share of a host so far: as it says where it knows better than the database."""
        row, known = rows.get((pool_id, agent)), _known(self._hosts[agent], pool_id)
        if row is None or known.revision > row.revision:
            return known.size
        return row.size

    def _send(self, rows: dict[_Key, OrderRow], wishes: dict[_Key, _Wish | None]) -> None:
        orders: dict[str, list[StandbyOrder]] = defaultdict(list)
        for (pool_id, agent), row in rows.items():
            wish = wishes.get((pool_id, agent), _Wish())
            if wish is not None and wish.size == row.size:
                order = StandbyOrder(pool_id, row.revision, row.size, wish.spec, wish.claim_signal)
                orders[agent].append(order)
        for agent, host in self._hosts.items():
            host.pool_orders.send(orders[agent])

    async def _forget_done(self, rows: dict[_Key, OrderRow]) -> None:
        done = [row for row in rows.values() if self._is_done(row)]
        if done:
            await self._store.forget(done)
        for row in done:
            del rows[row.pool, row.agent]

    def _is_done(self, row: OrderRow) -> bool:
        """Return whether an order is obsolete."""
        host = self._hosts.get(row.agent)
        return host is None or (
            row.size == 0 and host.pool_orders.is_acknowledged(row.pool, row.revision)
        )


def _run_the_same(before: WantedPool | None, now: WantedPool | None, tag: Tag) -> bool:
    """Return whether standbys of a pool and a tag run what they ran before."""
    if before is None or now is None:
        return False
    same_pool = before.revision == now.revision
    return same_pool and before.application == now.application and tag in now.tags


def _new_orders(
    rows: dict[_Key, OrderRow],
    wishes: dict[_Key, _Wish | None],
    hosts: dict[str, Host],
) -> Iterator[NewOrder]:
    """Compare the orders that hosts were sent and have confirmed with the plan."""
    reported = {
        (pool_id, name)
        for name, host in hosts.items()
        for pool_id, known in (host.report.warm_pools.items() if host.report else ())
        if known.size
    }
    for key in sorted(rows.keys() | wishes.keys() | reported):
        pool_id, agent = key
        row, wish = rows.get(key), wishes.get(key, _Wish())
        if wish is None or agent not in hosts:
            continue
        known = _known(hosts[agent], pool_id)
        if row is None and not wish.size and not known.size:
            continue
        same = (
            row is not None and row.size == wish.size and (not row.size or row.spec == wish.text)
        )
        if row is None or not same or (known.revision > row.revision and (row.size or known.size)):
            yield NewOrder(pool_id, agent, wish.size, wish.text, known.revision)


def _known(host: Host, pool_id: str) -> PoolOnHost:
    return _UNKNOWN if host.report is None else host.report.warm_pools.get(pool_id, _UNKNOWN)
