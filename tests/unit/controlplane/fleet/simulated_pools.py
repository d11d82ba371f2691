"""A fleet for the planning of warm pools: its hosts report what a test says, in fake time."""

import uuid
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

from controlplane.domain.applications.pool_fill import PoolFill
from controlplane.domain.applications.warm_pools import WantedPool, WarmPool
from controlplane.domain.hosts.contract import Drain, PoolOnHost
from controlplane.domain.hosts.desired_state import DesiredState
from controlplane.domain.placement.node_pools import NodePools
from controlplane.domain.placement.placement import HostView
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.storage.engine.changes import Change, Changes, Topic
from tests.support.controlplane.samples import APPLICATION
from tests.support.fake_clock import FakeClock
from tests.unit.controlplane.domain.placement.test_placement import HOST
from tiltyard.contract import Resources, SessionSpec


def a_wanted_pool(*, size: int = 1) -> WantedPool:
    pool = WarmPool("alice", "game", "local", size, enabled=True, id=str(uuid.uuid4()))
    return WantedPool(pool, 1, APPLICATION, ())


class SimulatedHost:
    """A host, and the control plane's view of it."""

    def __init__(self, name: str, region: str, clock: FakeClock) -> None:
        self.name = name
        self.clock = clock
        self.desired = DesiredState(Drain())
        self.host = replace(HOST, capacity=Resources(1000, 1000), free_sessions=3)
        self.reported_at = clock.monotonic()
        self.present: dict[str, list[str]] = {}
        """The images of its standbys, by pool."""
        self.ordered = 0
        row = SimpleNamespace(region=region, node_pool="default")
        self.state = SimpleNamespace(row=row, draining=False, lost=None, removed=False)
        self.orders = self

    @property
    def pools(self) -> set[str]:
        return self.desired.pools

    @property
    def overruled_pools(self) -> list[str]:
        return self.desired.overruled_pools

    def pool_size(self, pool_id: str) -> int:
        return self.desired.pool_size(pool_id)

    def order_pool(self, pool_id: str, size: int, spec: SessionSpec | None, signal: str) -> None:
        self.ordered += 1
        self.desired.order_pool(pool_id, size, spec, signal, now_ms=1)

    def image_of(self, pool_id: str) -> str:
        """Return the image of the newest order of a pool."""
        order = self.desired.pending_pool(pool_id)
        return "" if order is None or order.spec is None else order.spec.image

    def view(self) -> HostView:
        standbys = sum(len(images) for images in self.present.values())
        host = replace(self.host, free_sessions=max(0, self.host.free_sessions - standbys))
        host = replace(host, draining=self.state.draining)
        return HostView(self.name, host, report_age=self.clock.monotonic() - self.reported_at)

    def keep_ordered(self) -> set[str]:
        """Start and stop standbys as ordered, if there is room; return the changed pools."""
        before = dict(self.present)
        for pool_id in self.pools:
            image = self.image_of(pool_id)
            size = self.pool_size(pool_id)
            others = sum(len(images) for pool, images in self.present.items() if pool != pool_id)
            room = max(0, self.host.free_sessions - others)
            self.present[pool_id] = [image] * min(size, room)
        return {
            pool_id for pool_id, images in self.present.items() if before.get(pool_id) != images
        }


class SimulatedFleet:
    """Hosts, warm pools and their planner."""

    unresponsive_after = 5.0
    unreachable_after = 30.0
    unreported = SimpleNamespace(count=lambda *_, **__: 0)

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.by_name: dict[str, SimulatedHost] = {}
        self.wanted: dict[str, WantedPool] = {}
        self.node_pools = NodePools()
        self.changes = Changes()
        self.standbys = self
        self.revisions: Counter[str] = Counter()
        self.fills: list[PoolFill] = []
        self.changed: set[str] = set()
        self.reports: Callable[[Any], None] = lambda _: None
        part = cast("Any", self)
        self.planner = StandbyPools(part, part, clock=clock, random=Random(1))

    # ---- as the planner sees it

    @property
    def hosts(self) -> list[SimulatedHost]:
        return list(self.by_name.values())

    def hosts_of(self, region: str, node_pool: str) -> list[SimulatedHost]:
        place = (region, node_pool)
        rows = ((host, host.state.row) for host in self.hosts)
        return [host for host, row in rows if (row.region, row.node_pool) == place]

    def revision_of(self, region: str, _: str) -> int:
        return self.revisions[region]

    def report_age(self, host: SimulatedHost) -> float:
        return self.clock.monotonic() - host.reported_at

    def view(self, host: SimulatedHost) -> HostView:
        return host.view()

    def subscribe(self, listener: Callable[[Any], None]) -> None:
        self.reports = listener

    async def caught_up(self) -> None:
        pass

    async def read(self, _: object, *pool_id: str) -> Any:
        if pool_id:
            return self.wanted[pool_id[0]].pool
        return list(self.wanted.values())

    def pop_changed(self) -> set[str]:
        changed = self.changed
        self.changed = set()
        return changed

    async def run(self, _: object, fills: list[PoolFill], now: float) -> None:
        self.fills += fills

    def ready_of(self, pool_id: str, is_usable: Callable[[str], bool]) -> int:
        return sum(self.live_on(pool_id, name) for name in self.by_name if is_usable(name))

    def host(self, name: str) -> SimulatedHost | None:
        return self.by_name.get(name)

    def takes_claims(self, name: str) -> bool:
        return not self.by_name[name].state.draining

    def live_on(self, pool_id: str, agent: str) -> int:
        return len(self.by_name[agent].present.get(pool_id, ()))

    def ready_images(self, pool_id: str, agent: str) -> tuple[str, ...]:
        return tuple(self.by_name[agent].present.get(pool_id, ()))

    # ---- what happens

    def put(self, wanted: WantedPool) -> None:
        """Create or change a pool."""
        self.wanted[wanted.pool.id] = wanted
        self.changes.publish([Change(Topic.POOL)])

    def drop(self, pool_id: str) -> None:
        """Remove a pool."""
        self.wanted.pop(pool_id, None)
        self.changes.publish([Change(Topic.POOL)])

    def add(self, name: str, region: str) -> SimulatedHost:
        host = self.by_name[name] = SimulatedHost(name, region, self.clock)
        self.revisions[region] += 1
        return host

    def remove(self, name: str) -> None:
        host = self.by_name.pop(name)
        host.state.removed = True
        self.revisions[host.state.row.region] += 1
        self.changed |= host.present.keys()
        self.reports(host)

    def reported(self, host: SimulatedHost) -> None:
        """The host has reported: its standbys are as ordered."""
        host.reported_at = self.clock.monotonic()
        self.changed |= host.keep_ordered()
        self.reports(host)

    def health(self, host: SimulatedHost, **changes: Any) -> None:
        """The host reports another health, or other images."""
        host.host = replace(host.host, **changes)
        self.revisions[host.state.row.region] += 1
        self.reported(host)

    def overrule(self, host: SimulatedHost, pool_id: str, revision: int, size: int) -> None:
        """The host reports an order that another control plane has given."""
        host.desired.note_report(Drain(), {pool_id: PoolOnHost(revision, size)})
        self.reported(host)

    def sizes(self) -> dict[tuple[str, str], int]:
        """Return the order of each pool on each host."""
        return {
            (host.name, pool_id): host.pool_size(pool_id)
            for host in self.hosts
            for pool_id in host.pools
            if host.pool_size(pool_id)
        }
