"""Planning only the pools of which a fact has changed orders what planning all of them does."""

from collections.abc import Callable
from dataclasses import replace
from itertools import count
from random import Random

import pytest

from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WantedPool
from controlplane.fleet.standby_pools import GATHER, REVIEW_INTERVAL
from tests.support.fake_clock import FakeClock
from tests.support.tasks import running
from tests.unit.controlplane.domain.placement.test_placement import IMAGE
from tests.unit.controlplane.fleet.simulated_pools import (
    SimulatedFleet,
    SimulatedHost,
    a_wanted_pool,
)

STEPS = 40
ROUND = REVIEW_INTERVAL + GATHER + 0.1
REGIONS = ("here", "there")
NEWER = "r/game@sha256:1"
TAGS = (Tag("v1", "sha256:0", IMAGE),)
NEWER_TAGS = (Tag("v2", "sha256:1", NEWER), *TAGS)


class AlwaysNew(SimulatedFleet):
    """A fleet that is never as it was: each round plans all pools."""

    def __init__(self, clock: FakeClock) -> None:
        super().__init__(clock)
        self._numbers = count(1)

    def revision_of(self, region: str, _: str) -> int:
        return next(self._numbers)


Event = Callable[[SimulatedFleet], None]


def pool_event(chance: Random) -> Event:
    """Choose a change of a pool."""
    revision = chance.getrandbits(40)
    pool_id = f"p{chance.randrange(5)}"
    size = chance.randrange(6)
    region = chance.choice(REGIONS)
    tags = chance.choice((TAGS, NEWER_TAGS, ()))
    is_removal = chance.random() < 0.2

    def happen(fleet: SimulatedFleet) -> None:
        if is_removal:
            fleet.drop(pool_id)
            return
        made = a_wanted_pool(size=size)
        pool = replace(made.pool, id=pool_id, location=region, application=pool_id)
        application = replace(made.application, regions=(region,))
        fleet.put(WantedPool(pool, revision, application, tags))

    return happen


def _image_arrives(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    fleet.health(host, images=host.host.images ^ {NEWER})


def _engine_fails(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    fleet.health(host, engine_available=not host.host.engine_available)


def _is_drained(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    host.state.draining = not host.state.draining
    fleet.health(host)


def _is_lost(_: SimulatedFleet, host: SimulatedHost) -> None:
    host.state.lost = 1.0 if host.state.lost is None else None


def _has_other_sessions(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    host.host = replace(host.host, free_sessions=(host.host.free_sessions + 2) % 5)
    fleet.reported(host)


def _standby_ends(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    for pool_id, images in host.present.items():
        if images:
            host.present[pool_id] = images[1:]
            fleet.changed.add(pool_id)
    fleet.reports(host)


def _is_overruled(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    fleet.overrule(host, "p1", 1_000_000, 2)


def _has_an_unknown_pool(fleet: SimulatedFleet, host: SimulatedHost) -> None:
    fleet.overrule(host, "gone", 5, 3)


HOST_EVENTS = (
    _image_arrives,
    _engine_fails,
    _is_drained,
    _is_lost,
    _has_other_sessions,
    _standby_ends,
    _is_overruled,
    _has_an_unknown_pool,
)


def host_event(chance: Random) -> Event:
    """Choose a change of a host; a host that is away comes back."""
    name = f"h{chance.randrange(6)}"
    region = chance.choice(REGIONS)
    leaves = chance.random() < 0.1
    change = chance.choice(HOST_EVENTS)

    def happen(fleet: SimulatedFleet) -> None:
        host = fleet.by_name.get(name)
        if host is None:
            fleet.add(name, region)
        elif leaves:
            fleet.remove(name)
        else:
            change(fleet, host)

    return happen


@pytest.mark.parametrize("seed", range(10))
async def test_stale_pools_are_planned_as_all_pools_are(seed: int) -> None:
    chance = Random(seed)
    clock = FakeClock()
    fleet = SimulatedFleet(clock)
    whole = AlwaysNew(clock)
    async with running(fleet.planner.run(), whole.planner.run()):
        for step in range(STEPS):
            event = chance.choice((pool_event, host_event))(chance)
            silent = f"h{chance.randrange(6)}" if chance.random() < 0.5 else ""
            for each in (fleet, whole):
                event(each)
                for host in each.hosts:
                    if host.name != silent:
                        each.reported(host)
            await clock.advance(ROUND * chance.choice((1, 1, 1, 4)))
            assert fleet.sizes() == whole.sizes(), step
    regions = {pool_id: wanted.pool.location for pool_id, wanted in fleet.wanted.items()}
    for name, pool_id in fleet.sizes():
        assert fleet.by_name[name].state.row.region == regions[pool_id]


async def test_pools_whose_facts_stay_are_not_planned() -> None:
    clock = FakeClock()
    fleet = SimulatedFleet(clock)
    hosts = [fleet.add(f"h{number}", "here") for number in range(4)]
    made = a_wanted_pool(size=4)
    pool = replace(made.pool, location="here")
    fleet.put(replace(made, pool=pool, tags=TAGS))
    async with running(fleet.planner.run()):
        for _ in range(3):
            await clock.advance(ROUND)
            for host in hosts:
                fleet.reported(host)
        ordered = sum(host.ordered for host in hosts)
        for _ in range(3):
            await clock.advance(ROUND)
            for host in hosts:
                fleet.reported(host)
        assert sum(fleet.sizes().values()) == 4
        assert sum(host.ordered for host in hosts) == ordered
