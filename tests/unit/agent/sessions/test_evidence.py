"""What is believed of the end of a run when the engine was away or has missed it."""

import asyncio

import pytest

from tests.support.agent.hosts import Agent, Host
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import EndReason, State


@pytest.mark.parametrize(
    ("reports", "exit_code"),
    [
        (True, 3),
        (False, None),
    ],
)
async def test_exit_code_of_an_engine_that_was_away_is_not_believed(
    agent: Agent, *, reports: bool, exit_code: int | None
) -> None:
    """It makes one up, unless the container's init has reported it."""
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.ready(session.internal_id)  # its process is followed
    agent.engine.unavailable = True
    agent.engine.lose_process(session.container, 3 if reports else None)
    seen = agent.clock.time()
    await agent.clock.advance(2)
    agent.engine.unavailable = False
    agent.engine.end(session.container, 0)
    await agent.clock.advance(2)
    ended = (await agent.reached(session.internal_id)).session
    assert ended.state is State.EXITED
    assert ended.exit_code == exit_code
    assert ended.end_time == seen


@pytest.mark.parametrize("exit_code", [0, 3])
async def test_end_that_the_engine_misses_has_the_exit_code_that_init_reported(
    agent: Agent, exit_code: int
) -> None:
    """A game that ended as it should is not restarted."""
    session = await agent.sessions.start(an_id(), a_spec(restart=exit_code == 0))
    await agent.ready(session.internal_id)  # its process is followed
    agent.engine.lose_process(session.container, exit_code)
    await agent.clock.advance(60)
    dead = (await agent.reached(session.internal_id)).session
    assert dead.state is State.DEAD
    assert dead.end_reason is EndReason.ENGINE_ERROR
    assert dead.exit_code == exit_code
    assert dead.restart_count == 0


async def test_game_that_ended_with_0_is_not_restarted_by_what_an_engine_says_later(
    agent: Agent,
) -> None:
    """The engine was away, and makes an exit code up when it returns."""
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    await agent.ready(session.internal_id)  # its process is followed
    agent.engine.unavailable = True
    agent.engine.lose_process(session.container, 0)
    await agent.clock.advance(2)
    agent.engine.unavailable = False
    agent.engine.end(session.container, 255)
    await agent.clock.advance(60)
    ended = (await agent.reached(session.internal_id)).session
    assert ended.state is State.EXITED
    assert ended.exit_code == 0
    assert ended.restart_count == 0


async def test_end_that_nobody_saw_is_timed_by_the_engine(host: Host) -> None:
    """The engine hangs when the agent comes back, so that only the record names the process."""
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.ready(session.internal_id)
    await host.clock.advance(5)
    host.engine.end(session.container, 0)
    ended_at = host.clock.time()
    await host.clock.advance(5)
    host.engine.unavailable = True
    async with host(reconcile=False) as agent:
        stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        await until_idle()
        host.engine.unavailable = False
        await agent.pass_over()
        await host.clock.advance(2)
        assert (await stop).end_time == ended_at
