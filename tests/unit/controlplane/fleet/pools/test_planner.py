"""That planning many warm pools holds up nobody."""

import asyncio
import uuid
from collections.abc import Iterable
from dataclasses import dataclass
from random import Random
from typing import Any, cast

import pytest

from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.node_pools import NodePools
from controlplane.fleet.pools import planner
from controlplane.fleet.pools.planner import StandbyPools
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.standby_orders import OrderRow, StandbyOrderStore, WantedPool
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.contract import NetworkMode, Resources
from tiltyard.runtime.clock import Clock

POOLS = 50
SECONDS_EACH = 0.02
"""That planning one pool takes by the clock of these tests."""


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


@dataclass
class Stored:
    pools: list[WantedPool]

    async def wanted(self, _: object) -> list[WantedPool]:
        return self.pools

    async def all(self) -> list[OrderRow]:
        return []


class EmptyFleet:
    """A fleet without hosts, and a clock that moves while a pool is planned."""

    def __init__(self) -> None:
        self.hosts: Iterable[Host] = ()
        self.placement_silence = 5.0
        self.node_pools = NodePools()
        self.planned = 0

    def monotonic(self) -> float:
        return self.planned * SECONDS_EACH

    def subscribe(self, _: object) -> None:
        pass

    def hosts_of(self, *_: str) -> list[Host]:
        self.planned += 1
        return []


@dataclass
class Keeping:
    fleet: EmptyFleet
    waits: list[float]
    waiting: asyncio.Event


async def one_round(pools: list[WantedPool], monkeypatch: pytest.MonkeyPatch) -> Keeping:
    """Plan once, and see for how long nothing is planned then."""
    keeping = Keeping(EmptyFleet(), [], asyncio.Event())

    async def wait(_keeper: Any, _event: Any, seconds: float) -> None:
        keeping.waits.append(seconds)
        if len(keeping.waits) == 2:
            keeping.waiting.set()
            await asyncio.Event().wait()

    monkeypatch.setattr(StandbyPools, "_wait", wait)
    keeper = StandbyPools(
        cast("StandbyOrderStore", Stored(pools)),
        cast("Fleet", keeping.fleet),
        clock=cast("Clock", keeping.fleet),
        random=Random(1),
    )
    task = asyncio.create_task(keeper.run(), name="standby pools")
    await keeping.waiting.wait()
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
    return keeping


async def test_others_have_their_turn_between_two_pools(monkeypatch: pytest.MonkeyPatch) -> None:
    turns = 0

    async def take_turns() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    other = asyncio.create_task(take_turns(), name="other")
    keeping = await one_round([a_wanted_pool() for _ in range(POOLS)], monkeypatch)
    other.cancel()
    assert keeping.fleet.planned == POOLS
    assert turns >= POOLS


async def test_after_a_long_round_comes_a_long_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = await one_round([a_wanted_pool() for _ in range(POOLS)], monkeypatch)
    assert keeping.waits[-1] == planner.REST * POOLS * SECONDS_EACH
    keeping = await one_round([], monkeypatch)
    assert keeping.waits[-1] == planner.GATHER


async def test_a_round_in_which_the_machine_stood_still_keeps_the_pools_no_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    keeping = await one_round([a_wanted_pool() for _ in range(20 * POOLS)], monkeypatch)
    assert 20 * POOLS * SECONDS_EACH > planner.MAX_BACK_OFF
    assert keeping.waits[-1] == planner.MAX_BACK_OFF


async def test_a_pool_without_standbys_is_not_planned(monkeypatch: pytest.MonkeyPatch) -> None:
    keeping = await one_round([a_wanted_pool(size=0)] * POOLS, monkeypatch)
    assert keeping.fleet.planned == 0
