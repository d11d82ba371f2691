"""Stops, ends, restarts and lifetimes, on a host whose engine and clock are in memory."""

import asyncio

import pytest

from agent.domain import restarts
from agent.domain.errors import (
    AgentError,
    EngineError,
    EngineTimeoutError,
    ImageCannotRunError,
    PortTakenError,
    SessionNotFoundError,
    SessionStoppedError,
)
from agent.domain.session import Process
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, State


async def test_a_discarded_session_leaves_nothing_and_cannot_start_again(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert ended.state is State.EXITED
    await assert_nothing_is_left(agent)
    with pytest.raises(SessionNotFoundError):
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    with pytest.raises(SessionStoppedError):
        await agent.sessions.start(session.internal_id, a_spec())


async def test_a_game_that_ignores_sigterm_is_killed_after_the_grace_period(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.ignores_sigterm.add(f"tiltyard-{session.internal_id}")
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(9)
    assert agent.now(session.internal_id).state is State.SHUTTINGDOWN
    assert not stopper.done()
    await agent.clock.advance(2)
    assert (await stopper).exit_code == 137


REFUSALS = [PortTakenError("udp", 20000), EngineError("start", "it is told so")]


async def test_a_restart_that_the_engine_goes_on_refusing_ends_dead(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    life = agent.sessions.life(session.internal_id)
    for _ in range(restarts.TRIES):
        agent.engine.fail_next("start", REFUSALS[0])
    agent.engine.end(f"tiltyard-{session.internal_id}", 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(15)
    assert life.session.state is State.RESTARTING
    await agent.clock.advance(5)
    await life.wait_for(lambda now: now.state is State.DEAD)
    assert life.session.end_reason is EndReason.ENGINE_ERROR
    assert "cannot restart" in life.session.detail
    assert agent.nothing_is_held()


@pytest.mark.parametrize("refusal", REFUSALS, ids=["port", "engine"])
async def test_a_restart_that_the_engine_refuses_for_a_while_succeeds_then(
    agent: Agent, refusal: AgentError
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    life, name = agent.sessions.life(session.internal_id), f"tiltyard-{session.internal_id}"
    for round_number in (1, 2):  # what was refused before a success does not count
        for _ in range(restarts.TRIES - 1):
            agent.engine.fail_next("start", refusal)
        agent.engine.end(name, 1)
        await life.wait_for(lambda now: now.state is State.RESTARTING)
        await agent.clock.advance(30)
        assert life.session.state is State.RUNNING
        assert life.session.restart_count == round_number
        assert life.session.ports == session.ports


@pytest.mark.parametrize("refused", [False, True])
async def test_a_stop_while_a_restart_waits_is_final(agent: Agent, *, refused: bool) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    life = agent.sessions.life(session.internal_id)
    if refused:
        agent.engine.fail_next("start", PortTakenError("udp", 20000))
    agent.engine.end(f"tiltyard-{session.internal_id}", 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1.5 if refused else 0.5)
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert (ended.state, ended.end_reason) == (State.EXITED, EndReason.STOPPED)


async def test_a_restart_of_an_image_that_cannot_run_is_not_tried_again(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    life = agent.sessions.life(session.internal_id)
    agent.engine.fail_next("start", ImageCannotRunError("it is told so"))
    agent.engine.end(f"tiltyard-{session.internal_id}", 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: now.state is State.DEAD)


async def test_an_end_that_cannot_be_waited_for_is_no_end(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name, wait_end = f"tiltyard-{session.internal_id}", agent.engine.wait_end
    agent.engine.ignores_sigterm.add(name)
    failures = [EngineTimeoutError("inspect")]

    async def failing(process: Process) -> None:
        if failures and agent.now(session.internal_id).state is not State.RUNNING:
            raise failures.pop()
        await wait_end(process)

    monkeypatch.setattr(agent.engine, "wait_end", failing)
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    for _ in range(4):
        await agent.clock.advance(10)
    ended = await stopper
    assert (ended.state, ended.exit_code) == (State.EXITED, 137)
    assert (await agent.engine.inspect(name)).process is None


@pytest.mark.parametrize("lost", ["start", "inspect"])
async def test_a_stop_after_a_restart_of_unknown_outcome_ends_the_game(
    agent: Agent, lost: str
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    if lost == "start":
        agent.engine.answer_lost_next("start")
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    if lost == "inspect":
        agent.engine.fail_next("inspect", EngineError("inspect", "unreadable"))
    await agent.clock.advance(1)
    while (await agent.engine.inspect(name)).process is None:
        await asyncio.sleep(0)
    assert not life.session.state.ended
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert ended.state is State.EXITED
    assert (await agent.engine.inspect(name)).process is None
    assert agent.nothing_is_held()


async def test_a_stop_of_an_unknown_id_refuses_its_late_start_for_an_hour(host: Host) -> None:
    internal_id = an_id()
    async with host() as agent:
        with pytest.raises(SessionNotFoundError):
            await agent.sessions.stop(internal_id, EndReason.STOPPED)
        with pytest.raises(SessionStoppedError):
            await agent.sessions.start(internal_id, a_spec())
    async with host() as agent:
        with pytest.raises(SessionStoppedError):
            await agent.sessions.start(internal_id, a_spec())
        await host.clock.advance(3601)
        assert (await agent.sessions.start(internal_id, a_spec())).state is State.RUNNING


async def test_an_ended_container_and_later_the_session_itself_are_forgotten(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await until_sealed(agent, session.internal_id)
    await agent.pass_over()
    assert len(await agent.engine.list(agent.runtime.settings.agent_id)) == 1
    await agent.clock.advance(4 * 3600 + 1)
    await agent.pass_over()
    assert await agent.engine.list(agent.runtime.settings.agent_id) == []
    assert agent.now(session.internal_id).log_sealed
    await agent.clock.advance(7 * 86400)
    await agent.pass_over()
    await assert_nothing_is_left(agent)
