"""How what ended sessions left goes: a little at a time, and each thing once."""

import asyncio

import pytest

from agent.sessions import cleanup
from agent.sessions.reconciler import REMOVED_AT_ONCE
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, assert_nothing_is_left
from tests.support.fake_clock import settle
from tiltyard.contract import EndReason


async def test_containers_that_are_due_at_one_time_leave_the_engine_free_for_starts(
    agent: Agent,
) -> None:
    for _ in range(2 * REMOVED_AT_ONCE + 1):
        await agent.ended()
    await agent.clock.advance(4 * 3600)
    agent.engine.hold("remove")
    await agent.reconciler.pass_once()
    await settle()
    assert [call for call, _ in agent.engine.calls].count("remove") == REMOVED_AT_ONCE
    agent.engine.release("remove")
    await agent.reconciler.settled()
    assert await agent.engine.list(agent.runtime.settings.agent_id) == []
    await assert_survived(agent)


async def test_a_session_is_discarded_once_its_log_is_removed_and_not_meanwhile(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    internal_id = (await agent.ended()).internal_id
    life = agent.sessions.life(internal_id)
    await cleanup.remove_container(agent.runtime, life)
    real, slow = agent.records.drop_log, asyncio.Event()

    async def dropping(name: str) -> None:
        await slow.wait()
        await real(name)

    monkeypatch.setattr(agent.records, "drop_log", dropping)
    drop = asyncio.create_task(cleanup.drop_log(agent.runtime, life))
    await settle()
    discard = asyncio.create_task(
        agent.sessions.stop(internal_id, EndReason.STOPPED, discard=True)
    )
    await settle()
    assert agent.directories() == [internal_id]
    slow.set()
    await asyncio.gather(drop, discard)
    with agent.runtime.feed.subscribe() as subscription:
        await cleanup.drop_log(agent.runtime, life)
        assert (await subscription.take(0)).sessions == ()
    await assert_nothing_is_left(agent)
    assert "not recorded" not in caplog.text
