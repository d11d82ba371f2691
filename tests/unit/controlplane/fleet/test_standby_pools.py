import asyncio
import uuid
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from controlplane.fleet.node_pools import NodePools
from controlplane.fleet.standby_pools import GATHER, MAX_BACK_OFF, REST, StandbyPools
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.standby_orders import WantedPool
from controlplane.storage.tables.warm_pools import WarmPool
from tests.support.tasks import running
from tiltyard.contract import NetworkMode, Resources

SECONDS_EACH = 0.02  # Seconds that planning one pool takes by the clock of these tests


def a_wanted_pool(*, size: int = 1) -> WantedPool:
    one = Resources(1, 1)
    application = Application(
        account="alice",
        name="game",
        registry="r",
        repository="game",
        tag_keep=5,
        network_mode=NetworkMode.BRIDGE,
        node_pool="default",
        regions=("local",),
        limits=one,
        reservation=one,
        ports=(),
    )
    pool = WarmPool("alice", "game", "local", size, enabled=True, id=str(uuid.uuid4()))
    return WantedPool(pool, 1, application, ())


class EmptyFleet:
    """A fleet without hosts, its pools, and a clock that advances while a pool is planned."""

    hosts = ()
    unresponsive_after = 5.0
    node_pools = NodePools()
    unreported = SimpleNamespace(count=lambda *_, **__: 0)

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
        orders = SimpleNamespace(size=lambda _: ordered)
        self._host = SimpleNamespace(row=row, pool_orders=orders)

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
