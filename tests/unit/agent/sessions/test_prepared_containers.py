"""Which containers a host keeps prepared, and when it prepares and discards them."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.domain.containers.engine import LABEL_PREPARED, prepared_name
from agent.domain.kept.preparation import (
    FORGOTTEN_SECONDS,
    REVIEW_SECONDS,
    STEADY_SECONDS,
    Discard,
)
from agent.kernel.disks import Disk, Disks
from agent.settings.policy import Policy
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import Keeping, keeping_on
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import (
    NetworkMode,
    PortRequest,
    PreparedShape,
    Protocol,
    shape_key,
)

SHAPE = a_shape()
KEY = shape_key(SHAPE)
ANOTHER_IMAGE = "127.0.0.1:5000/game@sha256:" + "b" * 64


@pytest.fixture
async def keeping(host: Host) -> AsyncIterator[Keeping]:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        yield keeping


# -- what is prepared -----------------------------------------------------------------------------


async def test_keeps_one_of_an_ordered_shape(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    [found] = keeping.waiting
    assert found.name == prepared_name(found.labels[LABEL_PREPARED])
    assert keeping.keeper.shapes == [PreparedShape(KEY, SHAPE.image, 1)]
    assert keeping.keeper.held_ports(Protocol.UDP) == 1


async def test_keeps_one_of_a_shape_that_was_started(keeping: Keeping) -> None:
    await keeping.start()
    assert [each.kept for each in keeping.keeper.shapes] == [1]
    [prepared] = keeping.keeper.stock
    assert prepared.template.spec == SHAPE


async def test_keeps_more_of_a_shape_whose_starts_found_none(keeping: Keeping) -> None:
    await keeping.start(count=3)
    assert [each.kept for each in keeping.keeper.shapes] == [3]


async def test_keeps_fewer_of_what_is_not_used_and_none_after_an_hour(keeping: Keeping) -> None:
    await keeping.start(count=4)
    counts = []
    for _ in range(4):
        await keeping.agent.clock.advance(REVIEW_SECONDS)
        counts.append(len(keeping.waiting))
    assert counts == [4, 2, 1, 1]
    await keeping.agent.clock.advance(FORGOTTEN_SECONDS)
    assert keeping.waiting == []
    assert keeping.discarded(Discard.UNNEEDED) == 4


async def test_keeps_nothing_when_it_is_turned_off(host: Host) -> None:
    async with host(prepared=0) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        await keeping.start()
        assert keeping.all == []
        assert keeping.counted("prepared_missed_total") == 0


async def test_sessions_without_a_shape_ask_for_nothing(keeping: Keeping) -> None:
    await keeping.start(a_spec(ports=(PortRequest(7777, Protocol.UDP, pinned=20050),)))
    assert keeping.all == []


async def test_failed_start_asks_for_nothing(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.cannot_run.add(IMAGE)
    internal_id = an_id()
    starting = asyncio.ensure_future(agent.sessions.start(internal_id, a_spec()))
    await asyncio.gather(starting, return_exceptions=True)
    await agent.clock.advance(1.0)
    assert keeping.all == []


async def test_nothing_is_prepared_before_the_start_was_answered(keeping: Keeping) -> None:
    agent = keeping.agent
    internal_id = an_id()
    starting = asyncio.ensure_future(agent.sessions.start(internal_id, a_spec()))
    agent.steps.hold("start.saved")
    await agent.steps.reached("start.saved")
    await agent.clock.advance(0.1)
    assert keeping.all == []
    agent.steps.release("start.saved")
    await starting
    await agent.clock.advance(0.1)
    assert len(keeping.waiting) == 1


async def test_nothing_is_prepared_of_an_image_that_is_not_here(keeping: Keeping) -> None:
    await keeping.ordered(a_shape(image=ANOTHER_IMAGE))
    assert keeping.all == []
    assert keeping.keeper.warnings == ()
    keeping.agent.engine.image_store.add(ANOTHER_IMAGE)
    await keeping.agent.images.refresh()
    await until_idle()
    assert len(keeping.waiting) == 1


async def test_nothing_is_prepared_that_the_policy_forbids(host: Host) -> None:
    policy = Policy(host_network=False)
    async with host(prepared=8, policy=policy) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(a_shape(network_mode=NetworkMode.HOST))
        assert keeping.all == []


async def test_nothing_is_prepared_with_tls_ports_without_a_certificate(keeping: Keeping) -> None:
    await keeping.ordered(a_shape(ports=(PortRequest(443, Protocol.TCP, tls=True),)))
    assert keeping.all == []


async def test_nothing_is_prepared_on_a_full_disk(host: Host, tmp_path: Path) -> None:
    free = [1]
    disks = Disks(1, tmp_path, measure=lambda path, reserve: Disk(path, free[0], reserve))
    async with host(prepared=8, disks=disks) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        assert len(keeping.waiting) == 1
        free[0] = 0
        await agent.records.run(disks.look)
        await keeping.ordered(SHAPE, a_shape("other"))
        assert keeping.accounts == ["acme"]


async def test_nothing_is_prepared_before_the_first_pass(host: Host) -> None:
    async with host(prepared=8, reconcile=False) as agent:
        keeping = Keeping(agent)
        await keeping.ordered(SHAPE)
        keeping.keeper.look()
        await until_idle()
        assert keeping.all == []


# -- start slots ----------------------------------------------------------------------------------


async def test_preparing_leaves_start_slots_to_sessions(host: Host) -> None:
    async with host(prepared=100, start_slots=12) as agent, keeping_on(agent) as keeping:
        agent.engine.hold("create")
        shapes = [a_shape(f"account-{number}") for number in range(20)]
        await keeping.ordered(*shapes)
        assert agent.reservations.start_slots.used == 3
        agent.engine.release("create")
        await until_idle()
        assert len(keeping.waiting) == 20
        assert agent.reservations.start_slots.used == 0


async def test_nothing_is_prepared_while_a_start_waits(host: Host) -> None:
    async with host(prepared=8, start_slots=8) as agent, keeping_on(agent) as keeping:
        slots = agent.reservations.start_slots
        while slots.take("other"):
            continue
        waiting = asyncio.create_task(slots.wait("other"))
        await asyncio.sleep(0)
        await keeping.ordered(SHAPE)
        assert keeping.all == []
        waiting.cancel()
        slots.release("other")
        agent.runtime.feed.host_changed()
        await until_idle()
        assert len(keeping.waiting) == 1


# -- limits ---------------------------------------------------------------------------------------


async def test_account_has_its_share(host: Host) -> None:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        await keeping.start(count=8)
        assert keeping.accounts == ["acme"] * 4
        await keeping.start(a_shape("other"), count=8)
        assert keeping.accounts == ["acme"] * 3 + ["other"] * 3
        assert keeping.discarded(Discard.UNNEEDED) == 1


async def test_first_of_another_shape_displaces_a_second(host: Host) -> None:
    async with host(prepared=3) as agent, keeping_on(agent) as keeping:
        await keeping.start(count=2)
        assert keeping.accounts == ["acme", "acme"]
        await keeping.start(a_shape("other"))
        await keeping.start(a_shape("third"))
        assert keeping.accounts == ["acme", "other", "third"]
        await agent.clock.advance(STEADY_SECONDS / 2)
        await keeping.start(a_shape("fourth"))
        assert keeping.accounts == ["acme", "other", "third"]
        await agent.clock.advance(STEADY_SECONDS)
        await keeping.start(a_shape("fourth"))
        assert keeping.accounts == ["fourth", "other", "third"]


async def test_no_more_containers_exist_than_may_be_kept(host: Host) -> None:
    """What displaces another is begun once that is gone."""
    async with host(prepared=1) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        agent.engine.hold("remove")
        await keeping.start(a_shape("other"))
        await agent.engine.held("remove")
        await until_idle()
        assert len(keeping.all) == 1
        agent.engine.release("remove")
        await until_idle()
        assert keeping.accounts == ["other"]


async def test_sessions_and_prepared_containers_are_at_most_1000(host: Host) -> None:
    async with host(prepared=1000) as agent, keeping_on(agent) as keeping:
        capacity = agent.reservations.capacity
        for number in range(996):
            capacity.adopt(str(number), a_spec().reservation, ())
        await keeping.start(count=3)
        assert len(keeping.waiting) == 1
        for number in range(996, 1000):
            capacity.adopt(str(number), a_spec().reservation, ())
        agent.runtime.feed.host_changed()
        await until_idle()
        assert keeping.waiting == []
