import asyncio
from collections.abc import Callable
from dataclasses import replace
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WantedPool
from controlplane.domain.placement.node_pools import NodePools
from controlplane.domain.placement.placement import HostView
from controlplane.fleet.standby_pools import (
    GATHER,
    MAX_BACK_OFF,
    REREAD_INTERVAL,
    REST,
    REVIEW_INTERVAL,
    StandbyPools,
)
from controlplane.storage.engine.changes import Changes
from tests.support.tasks import running
from tests.unit.controlplane.domain.placement.test_placement import IMAGE, VIEW
from tests.unit.controlplane.fleet.simulated_pools import a_wanted_pool

SECONDS_EACH = 0.02  # Seconds that planning one pool takes by the clock of these tests


class EmptyFleet:
    """A fleet without hosts, its pools, and a clock that advances while a pool is planned."""

    hosts = ()
    unresponsive_after = 5.0
    node_pools = NodePools()
    unreported = SimpleNamespace(count=lambda *_, **__: 0)
    standbys = SimpleNamespace(pop_changed=set, ready_of=lambda *_: 0)
    changes = Changes()

    async def caught_up(self) -> None:
        pass

    async def run(self, *_: object) -> None:
        """Write no events."""

    def time(self) -> float:
        return self.monotonic()

    def __init__(self, pools: list[WantedPool]) -> None:
        self.pools = pools
        self.planned = 0
        self.pauses: list[float] = []
        self.rests = asyncio.Event()

    async def read(self, _: object, *pool_id: str) -> Any:
        found = [wanted.pool for wanted in self.pools if wanted.pool.id in pool_id]
        return found[0] if found else self.pools

    def monotonic(self) -> float:
        return self.planned * SECONDS_EACH

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 2:
            self.rests.set()
            await asyncio.Event().wait()

    def subscribe(self, _: object) -> None:
        pass

    def revision_of(self, *_: str) -> int:
        return 1

    def hosts_of(self, *_: str) -> list[Any]:
        self.planned += 1
        return []


def pools_of(fleet: EmptyFleet) -> StandbyPools:
    part = cast("Any", fleet)
    return StandbyPools(part, part, clock=part, random=Random(1))


async def one_round(pools: list[WantedPool]) -> EmptyFleet:
    """Plan once, up to the pause that follows."""
    fleet = EmptyFleet(pools)
    async with running(pools_of(fleet).run()):
        await fleet.rests.wait()
    return fleet


class ReadyHost(EmptyFleet):
    """A fleet of which one host has ready standbys."""

    def __init__(self, pools: list[WantedPool], *, place: tuple[str, str], ordered: int) -> None:
        super().__init__(pools)
        row = SimpleNamespace(region=place[0], node_pool=place[1])
        orders = SimpleNamespace(pool_size=lambda _: ordered)
        self._host = SimpleNamespace(state=SimpleNamespace(row=row), orders=orders)

    def host(self, _: str) -> Any:
        return self._host

    def takes_claims(self, _: str) -> bool:
        return True


@pytest.mark.parametrize(
    ("place", "ordered", "can_claim"),
    [
        (("local", "default"), 1, True),
        (("local", "default"), 0, False),
        (("elsewhere", "default"), 1, False),
        (("local", "other"), 1, False),
    ],
)
async def test_standbys_are_claimed_from_hosts_in_the_place_of_their_pool_with_an_order_alone(
    place: tuple[str, str], ordered: int, *, can_claim: bool
) -> None:
    pool = a_wanted_pool()
    fleet = ReadyHost([pool], place=place, ordered=ordered)
    pools = pools_of(fleet)
    async with running(pools.run()):
        await fleet.rests.wait()
    assert pools.can_claim(pool.pool.id, "host") is can_claim
    assert not pools.can_claim("another pool", "host")


async def test_other_tasks_run_between_two_pools() -> None:
    runs = 0

    async def run() -> None:
        nonlocal runs
        while True:
            runs += 1
            await asyncio.sleep(0)

    async with running(run()):
        fleet = await one_round([a_wanted_pool() for _ in range(50)])
    assert fleet.planned == 50
    assert runs >= 50


async def test_other_pools_are_planned_after_an_unexpected_error_of_one(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    hosts_of = EmptyFleet.hosts_of

    def failing(self: EmptyFleet, *place: str) -> list[Any]:
        hosts_of(self, *place)
        if self.planned == 2:
            raise RuntimeError("as scripted")
        return []

    monkeypatch.setattr(EmptyFleet, "hosts_of", failing)
    pools = [a_wanted_pool() for _ in range(3)]
    fleet = await one_round(pools)
    assert fleet.planned == 3
    expected = f"cannot plan a warm pool: internal error pool={pools[1].pool.id}"
    assert caplog.messages == [expected]


@pytest.mark.parametrize(
    ("size", "count", "pause"),
    [
        (1, 50, REST * 50 * SECONDS_EACH),
        (1, 1000, MAX_BACK_OFF),  # the machine may have stalled
        (0, 50, GATHER),  # a pool without standbys is not planned
    ],
)
async def test_the_pause_is_a_multiple_of_the_round(size: int, count: int, pause: float) -> None:
    fleet = await one_round([a_wanted_pool(size=size) for _ in range(count)])
    assert fleet.pauses[-1] == pytest.approx(pause)


class FilledPool(EmptyFleet):
    """A fleet of one host, which has all standbys of a pool; it reports between two rounds."""

    unreachable_after = 30.0

    def __init__(self, pool: WantedPool, happens: Callable[["FilledPool"], object]) -> None:
        super().__init__([pool])
        self.happens = happens
        self.now = 0.0
        self.revision = 1
        self.views = 0
        self.changed: set[str] = set()
        self.reports: Callable[[object], None] = lambda _: None
        self.standbys = SimpleNamespace(
            pop_changed=self._pop_changed, live_on=lambda *_: 1, ready_of=lambda *_: 1
        )
        orders = SimpleNamespace(
            pool_size=lambda _: 1,
            pools=set(),
            overruled_pools=(),
            order_pool=lambda *_: None,
        )
        row = SimpleNamespace(region="local", node_pool="default")
        state = SimpleNamespace(row=row, removed=False, draining=False, lost=None)
        self.age = 0.0
        self._host = SimpleNamespace(name="h", state=state, orders=orders)

    def _pop_changed(self) -> set[str]:
        changed = self.changed
        self.changed = set()
        return changed

    def monotonic(self) -> float:
        return self.now

    async def sleep(self, seconds: float) -> None:
        self.pauses.append(seconds)
        if len(self.pauses) == 3:
            self.rests.set()
        elif seconds == REVIEW_INTERVAL:
            self.happens(self)
            self.reports(self._host)
        else:
            return
        await asyncio.Event().wait()

    def subscribe(self, listener: Any) -> None:
        self.reports = listener

    def revision_of(self, *_: str) -> int:
        return self.revision

    def hosts_of(self, *_: str) -> list[Any]:
        return [self._host]

    @property
    def hosts(self) -> list[Any]:  # type: ignore[override]
        return [self._host]

    def report_age(self, _: object) -> float:
        return self.age

    def view(self, _: object) -> HostView:
        self.views += 1
        return VIEW


def nothing(_: FilledPool) -> None:
    pass


def a_host_changes(fleet: FilledPool) -> None:
    fleet.revision += 1


def a_standby_ends(fleet: FilledPool) -> None:
    fleet.changed.add(fleet.pools[0].pool.id)


def time_passes(fleet: FilledPool) -> None:
    fleet.now += REVIEW_INTERVAL


def the_host_is_silent(fleet: FilledPool) -> None:
    fleet.age = fleet.unresponsive_after + 1


def a_minute_passes(fleet: FilledPool) -> None:
    fleet.now += REREAD_INTERVAL


@pytest.mark.parametrize(
    ("happens", "plans"),
    [
        (nothing, 1),
        (a_host_changes, 2),
        (a_standby_ends, 2),
        (time_passes, 1),
        (the_host_is_silent, 2),
        (a_minute_passes, 2),
    ],
)
async def test_a_filled_pool_is_planned_again_if_its_hosts_or_standbys_change(
    happens: Callable[[FilledPool], object], plans: int
) -> None:
    tag = Tag("v1", "sha256:0", IMAGE)
    fleet = FilledPool(replace(a_wanted_pool(), tags=(tag,)), happens)
    async with running(pools_of(fleet).run()):
        await fleet.rests.wait()
    assert fleet.views == plans


async def test_a_pool_that_lacks_standbys_is_planned_with_each_report() -> None:
    tag = Tag("v1", "sha256:0", IMAGE)
    fleet = FilledPool(replace(a_wanted_pool(size=2), tags=(tag,)), nothing)
    async with running(pools_of(fleet).run()):
        await fleet.rests.wait()
    assert fleet.views == 2
