"""Restarts of a game that fails at once, or that its host has no room for, and their stops."""

import asyncio

import pytest

from agent.domain import restarts
from agent.domain.engine import container_name
from agent.domain.errors import DiskFullError, EngineTimeoutError
from agent.domain.session import Process
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, until
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, State


async def test_a_game_that_fails_before_its_restart_is_looked_at_is_restarted_again(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = container_name(session.internal_id), agent.sessions.life(session.internal_id)
    agent.steps.hold("restart.started")
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1)
    await agent.steps.reached("restart.started")
    agent.engine.lose_process(name)
    agent.steps.release("restart.started")
    await agent.clock.advance(0.1)
    assert life.session.state is State.RESTARTING
    agent.engine.end(name, 1)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: len(now.failed_runs) == 2)
    await agent.clock.advance(2)
    await life.wait_for(lambda now: now.state is State.RUNNING)
    assert (life.session.restart_count, life.session.process is None) == (2, False)
    await assert_survived(agent)


async def test_f34_a_restart_that_finds_no_room_on_the_engines_disk_is_tried_again(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = container_name(session.internal_id), agent.sessions.life(session.internal_id)
    for _ in range(restarts.TRIES - 1):
        agent.engine.fail_next("start", DiskFullError("the engine's storage", "no space left"))
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(60)
    assert (life.session.state, life.session.restart_count) == (State.RUNNING, 1)
    await assert_survived(agent)


async def test_a_stop_is_heard_while_the_end_of_a_process_cannot_be_waited_for(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = container_name(session.internal_id), agent.sessions.life(session.internal_id)
    wait_end, tried = agent.engine.wait_end, asyncio.Event()

    async def failing(process: Process) -> None:
        if life.session.state is State.RUNNING:
            tried.set()
            raise EngineTimeoutError("inspect")
        await wait_end(process)

    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    monkeypatch.setattr(agent.engine, "wait_end", failing)
    await agent.clock.advance(1)
    await tried.wait()
    stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await until(stop.done)
    assert stop.result().state is State.EXITED
