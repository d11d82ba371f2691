"""Preparations that fail back off, by shape."""

from collections.abc import AsyncIterator

import pytest

from agent.domain.errors import EngineError
from agent.domain.kept.preparation import (
    Discard,
)
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import Keeping, keeping_on
from tests.support.agent.samples import IMAGE
from tiltyard.contract import (
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


async def test_failed_preparation_is_undone_and_backs_off(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.cannot_start.add(IMAGE)
    await keeping.ordered(SHAPE)
    assert keeping.all == []
    assert await agent.records.prepared_ids() == []
    assert agent.nothing_is_held()
    assert agent.reservations.start_slots.used == 0
    cause = "cannot run the image: as scripted"
    assert keeping.keeper.warnings == (f"prepared containers of {IMAGE}: {cause}",)
    assert keeping.keeper.shapes == [PreparedShape(KEY, IMAGE, 0, cause)]
    tries = []
    for _ in range(5):
        tries.append(agent.engine.count("create"))
        await agent.clock.advance(1.0)
    assert tries == [1, 2, 2, 3, 3]
    assert keeping.discarded(Discard.FAILED) == 3


async def test_warning_ends_once_a_container_waits(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.fail_next("start", EngineError("start", "as scripted"))
    await keeping.ordered(SHAPE)
    assert keeping.keeper.warnings != ()
    await agent.clock.advance(1.0)
    assert len(keeping.waiting) == 1
    assert keeping.keeper.warnings == ()
    assert keeping.keeper.shapes == [PreparedShape(KEY, IMAGE, 1)]


async def test_failing_shape_leaves_others(keeping: Keeping) -> None:
    keeping.agent.engine.image_store.add(ANOTHER_IMAGE)
    keeping.agent.engine.cannot_start.add(ANOTHER_IMAGE)
    await keeping.agent.images.refresh()
    await keeping.ordered(a_shape(image=ANOTHER_IMAGE), SHAPE)
    assert keeping.accounts == ["acme"]


async def test_starts_during_a_back_off_do_not_ask_for_more(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.fail_next("start", EngineError("start", "as scripted"))
    await keeping.ordered(SHAPE)
    await keeping.start(count=3)
    await agent.clock.advance(1.0)
    assert len(keeping.waiting) == 1


async def test_nothing_is_prepared_while_the_engine_is_away(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.unavailable = True
    await keeping.ordered(SHAPE)
    tried = agent.engine.count("create")
    await agent.clock.advance(60.0)
    assert agent.engine.count("create") == tried
    agent.engine.unavailable = False
    await agent.clock.advance(60.0)
    assert keeping.all == []
    await keeping.agent.pass_over()
    await agent.clock.advance(60.0)
    assert len(keeping.waiting) == 1


async def test_other_ports_are_taken_for_those_in_use(keeping: Keeping) -> None:
    agent = keeping.agent
    agent.engine.ports.occupy("udp", 20000)
    await keeping.ordered(SHAPE)
    [prepared] = keeping.keeper.stock
    udp = next(port for port in prepared.template.ports if port.protocol is Protocol.UDP)
    assert udp.host != 20000
    assert agent.engine.ports.published["udp", udp.host] == prepared.container.container


async def test_container_that_ends_at_once_is_a_failure(
    keeping: Keeping, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = keeping.agent
    started = agent.engine.start

    async def ending(*args: object) -> object:
        found = await started(*args)  # type: ignore[arg-type]
        agent.engine.end(found.container, 1)
        return await agent.engine.inspect(found.container)

    monkeypatch.setattr(agent.engine, "start", ending)
    await keeping.ordered(SHAPE)
    assert [each.error for each in keeping.keeper.shapes] == ["it ended at once"]
    assert keeping.all == []
