"""When prepared containers are discarded, and what remains of them."""

import asyncio
import dataclasses
from collections.abc import AsyncIterator

import pytest

from agent.changes.looking import PASS_SECONDS
from agent.domain.containers.engine import LABEL_PREPARED
from agent.domain.errors import EngineError
from agent.domain.kept.preparation import (
    Discard,
)
from agent.domain.sessions.history import Usage
from agent.sessions.prepared_containers import PORTS_PAUSE_SECONDS
from agent.sessions.preparing import HAS_ENDED
from agent.state.drain import DrainOrder
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import Keeping, keeping_on
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import (
    MEBI,
    EndReason,
    PortRequest,
    Protocol,
    Resources,
    shape_key,
)

SHAPE = a_shape()
KEY = shape_key(SHAPE)
ANOTHER_IMAGE = "127.0.0.1:5000/game@sha256:" + "b" * 64


@pytest.fixture
async def keeping(host: Host) -> AsyncIterator[Keeping]:
    async with host(prepared=8) as agent, keeping_on(agent) as keeping:
        yield keeping


async def test_drain_discards_all_and_its_end_prepares_again(keeping: Keeping) -> None:
    agent = keeping.agent
    await keeping.ordered(SHAPE, a_shape("other"))
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    await until_idle()
    assert keeping.all == []
    assert keeping.discarded(Discard.DRAIN) == 2
    assert agent.nothing_is_held()
    await agent.sessions.drains.order(DrainOrder(2, draining=False))
    await until_idle()
    assert len(keeping.waiting) == 2


async def test_usage_is_read_until_it_is_discarded(keeping: Keeping) -> None:
    agent = keeping.agent
    await keeping.ordered(SHAPE)
    [found] = keeping.keeper.stock
    agent.cgroups.use(found.container.process, cpu_seconds=1, memory_bytes=1)
    assert await agent.usage.read(found.prepared_id) == Usage(1, 1)
    await agent.sessions.drains.order(DrainOrder(1, draining=True))
    await until_idle()
    assert await agent.usage.read(found.prepared_id) == Usage()


async def test_stopped_by_hand_backs_off(keeping: Keeping) -> None:
    """A program that stops waiting containers again and again wins."""
    agent = keeping.agent
    await keeping.ordered(SHAPE)
    stopped = 0
    for _ in range(20):
        for found in keeping.waiting:
            await agent.engine.kill(found.container, "SIGKILL")
            stopped += 1
        await keeping.agent.pass_over(after=10.0)
    assert 1 < stopped <= 8
    assert keeping.discarded(Discard.ENDED) == stopped
    assert keeping.keeper.warnings == (f"prepared containers of {IMAGE}: {HAS_ENDED}",)


async def test_removed_by_hand_is_replaced(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    [found] = keeping.waiting
    await keeping.agent.engine.remove(found.container)
    await keeping.agent.pass_over()
    assert keeping.discarded(Discard.ENDED) == 1
    await keeping.agent.clock.advance(1.0)
    [other] = keeping.waiting
    assert other.container != found.container
    assert await keeping.agent.records.prepared_ids() == [other.labels[LABEL_PREPARED]]


async def test_started_again_by_hand_is_replaced(keeping: Keeping) -> None:
    """The init of another run is not the one that was prepared."""
    await keeping.ordered(SHAPE)
    [found] = keeping.waiting
    keeping.agent.engine.start_from_outside(found.container)
    await keeping.agent.pass_over()
    assert keeping.discarded(Discard.ENDED) == 1


async def test_container_that_an_old_list_lacks_is_kept(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    [found] = keeping.waiting
    await keeping.compare([])
    assert keeping.waiting == [found]
    assert keeping.discarded(Discard.ENDED) == 0


async def test_removed_container_on_an_old_list_does_not_come_back(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    old = keeping.all
    await keeping.ordered()
    await keeping.compare(old)
    assert keeping.keeper.shapes == []
    assert keeping.agent.nothing_is_held()


async def test_outdated_is_replaced(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    [found] = keeping.waiting
    keeping.agent.engine.config_version += 1
    await keeping.agent.pass_over()
    [other] = keeping.waiting
    assert other.container != found.container
    assert keeping.discarded(Discard.OUTDATED) == 1
    assert keeping.keeper.warnings == ()


async def test_shapes_that_are_no_longer_ordered_are_discarded(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    other = dataclasses.replace(SHAPE, disk_bytes=10**9)
    await keeping.ordered(other)
    assert [each.key for each in keeping.keeper.shapes] == [shape_key(other)]
    assert keeping.discarded(Discard.UNNEEDED) == 1


async def test_image_is_free_for_its_removal(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.image_store.add(ANOTHER_IMAGE)
    await agent.images.refresh()
    await keeping.ordered(SHAPE, a_shape(image=ANOTHER_IMAGE))
    await keeping.keeper.discard_image(IMAGE)
    await until_idle()
    assert [each.image for each in keeping.keeper.shapes] == [ANOTHER_IMAGE]
    assert keeping.discarded(Discard.IMAGE) == 1
    await agent.images.remove(IMAGE)
    await agent.clock.advance(60.0)
    assert [each.image for each in keeping.keeper.shapes] == [ANOTHER_IMAGE]


async def test_container_in_preparation_does_not_keep_an_image(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.hold("start")
    await keeping.ordered(SHAPE)
    await agent.engine.held("start")
    discarding = asyncio.ensure_future(keeping.keeper.discard_image(IMAGE))
    await until_idle()
    assert not discarding.done()
    agent.engine.release("start")
    await discarding
    assert keeping.all == []


async def test_removal_is_tried_again(keeping: Keeping) -> None:
    agent = keeping.agent
    await keeping.ordered(SHAPE)
    agent.engine.fail_next("remove", EngineError("remove", "as scripted"), times=2)
    await keeping.ordered()
    assert len(keeping.all) == 1
    await agent.clock.advance(5.0)
    assert keeping.all == []
    assert await agent.records.prepared_ids() == []
    assert agent.nothing_is_held()


# -- ports are given back first -------------------------------------------------------------------


async def test_ports_are_given_back_to_sessions(host: Host) -> None:
    async with host(prepared=8, ports=(20000, 20001)) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        assert agent.reservations.ports.free(Protocol.UDP) == 1
        two = (PortRequest(1, Protocol.UDP), PortRequest(2, Protocol.UDP))
        assert await keeping.keeper.make_room(a_spec(ports=two))
        assert agent.reservations.ports.free(Protocol.UDP) == 2
        assert keeping.discarded(Discard.PORTS) == 1
        session = await agent.sessions.start(an_id(), a_spec(ports=two))
        assert len(session.ports) == 2


async def test_nothing_is_prepared_for_a_while_after_ports_were_given_back(host: Host) -> None:
    async with host(prepared=8, ports=(20000, 20000)) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE)
        assert await keeping.keeper.make_room(SHAPE)
        await agent.clock.advance(PORTS_PAUSE_SECONDS - 1.0)
        assert keeping.all == []
        await agent.clock.advance(PASS_SECONDS)
        assert len(keeping.waiting) == 1


async def test_no_more_are_discarded_than_ports_are_lacking(host: Host) -> None:
    async with host(prepared=8, ports=(20000, 20002)) as agent, keeping_on(agent) as keeping:
        await keeping.ordered(SHAPE, a_shape("other"), a_shape("third"))
        assert len(keeping.waiting) == 3
        assert await keeping.keeper.make_room(a_spec(ports=(PortRequest(1, Protocol.UDP),)))
        assert len(keeping.waiting) == 2


async def test_pinned_port_is_given_back(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE, a_shape("other"))
    [kept, wanted] = keeping.keeper.stock
    [udp] = [each.host for each in wanted.template.ports if each.protocol is Protocol.UDP]
    assert await keeping.keeper.make_room(
        a_spec(ports=(PortRequest(1, Protocol.UDP, pinned=udp),))
    )
    assert list(keeping.keeper.stock) == [kept]


async def test_no_room_is_made_by_containers_without_such_ports(keeping: Keeping) -> None:
    await keeping.ordered(SHAPE)
    assert not await keeping.keeper.make_room(
        a_spec(ports=(PortRequest(1, Protocol.UDP, pinned=20050),))
    )
    assert len(keeping.waiting) == 1


async def test_room_waits_for_a_removal_in_progress(keeping: Keeping) -> None:
    agent = keeping.agent
    await keeping.ordered(SHAPE)
    agent.engine.hold("remove")
    await keeping.ordered()
    await agent.engine.held("remove")
    making = asyncio.ensure_future(keeping.keeper.make_room(SHAPE))
    await until_idle()
    assert not making.done()
    agent.engine.release("remove")
    assert await making
    assert agent.nothing_is_held()


async def test_ports_of_a_container_in_preparation_are_given_back(host: Host) -> None:
    async with host(prepared=8, ports=(20000, 20000)) as agent, keeping_on(agent) as keeping:
        agent.engine.hold("create")
        await keeping.ordered(SHAPE)
        await agent.engine.held("create")
        assert keeping.keeper.held_ports(Protocol.UDP) == 1
        other = a_spec(limits=Resources(10**8, 32 * MEBI))
        starting = asyncio.ensure_future(agent.sessions.start(an_id(), other))
        await until_idle()
        agent.engine.release("create")
        session = await starting
        assert {port.host for port in session.ports} == {20000}
        assert keeping.discarded(Discard.PORTS) == 1
        assert keeping.waiting == []


async def test_ports_that_are_being_given_back_count_as_free(keeping: Keeping) -> None:
    agent = keeping.agent
    await keeping.ordered(SHAPE)
    agent.engine.hold("remove")
    await keeping.ordered()
    await agent.engine.held("remove")
    assert keeping.keeper.held_ports(Protocol.UDP) == 1
    agent.engine.release("remove")
    await until_idle()
    assert keeping.keeper.held_ports(Protocol.UDP) == 0


async def test_host_without_a_free_port_prepares_nothing_and_does_not_warn(host: Host) -> None:
    async with host(prepared=8, ports=(20000, 20000)) as agent, keeping_on(agent) as keeping:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.clock.advance(1.0)
        assert keeping.all == []
        assert keeping.keeper.warnings == ()
        assert agent.reservations.start_slots.used == 0
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        await agent.clock.advance(PASS_SECONDS)
        assert len(keeping.waiting) == 1
