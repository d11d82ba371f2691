"""An unexpected error about one prepared container leaves the others."""

from typing import Any

import pytest

from agent.domain.kept.demands import Demands
from agent.sessions import containers
from agent.state.record import Records
from tests.agent.contained import SCRIPTED, started
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import Host
from tests.support.agent.keeping import kept_prepared
from tests.support.fake_clock import until_idle
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import EndReason, State, shape_key

ACME = a_shape()
OTHER = a_shape("other")


async def test_error_of_a_preparation(
    host: Host, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(prepared=8) as agent, kept_prepared(agent) as keeper:
        failed = fails(containers, "prepare", "account='acme'")
        keeper.set_shapes([ACME, OTHER])
        await until_idle()
        assert failed == ["prepare"]
        assert SCRIPTED in caplog.text
        assert [each.key for each in keeper.shapes if each.kept] == [shape_key(OTHER)]
        assert agent.reservations.start_slots.used == 0
        await agent.clock.advance(1.5)
        assert {each.key for each in keeper.shapes} == {shape_key(ACME), shape_key(OTHER)}


async def test_error_while_a_prepared_container_is_removed(
    host: Host, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(prepared=8) as agent, kept_prepared(agent) as keeper:
        keeper.set_shapes([ACME, OTHER])
        await until_idle()
        [acme] = [each for each in keeper.stock if each.template.spec == ACME]
        failed = fails(Records, "drop_prepared", acme.prepared_id)
        keeper.set_shapes([])
        await until_idle()
        assert failed == ["drop_prepared"]
        assert SCRIPTED in caplog.text
        assert acme.prepared_id in await agent.records.prepared_ids()
        await agent.clock.advance(1.0)
        assert await agent.records.prepared_ids() == []
        assert agent.nothing_is_held()


async def test_error_while_a_container_is_renamed(
    host: Host, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(prepared=8) as agent, kept_prepared(agent) as keeper:
        keeper.set_shapes([ACME])
        await until_idle()
        [acme] = keeper.stock
        failed = fails(FakeEngine, "rename", acme.container.container)
        session = await started(agent)
        assert session.container == acme.container.container
        await agent.ready(session.internal_id)
        await agent.clock.advance(1)
        assert failed == ["rename"]
        assert SCRIPTED in caplog.text
        ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert ended.state is State.EXITED


async def test_error_after_a_start(
    host: Host, fails: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async with host(prepared=8) as agent, kept_prepared(agent) as keeper:
        failed = fails(Demands, "note_missed", "account='acme'")
        for _ in range(2):
            await started(agent)
            await agent.clock.advance(1.0)
        assert failed == ["note_missed"]
        assert SCRIPTED in caplog.text
        assert [each.kept for each in keeper.shapes] == [1]
