import asyncio
from pathlib import Path
from unittest import mock

import pytest

from agent.domain.containers.engine import ReportedEnd
from agent.domain.errors import (
    DiskFullError,
    EngineTimeoutError,
    EngineUnavailableError,
    HandOverFailedError,
)
from agent.domain.sessions import restarts
from agent.domain.sessions.session import Process, Session
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import EndReason, State


async def _fail_and_restart(agent: Agent, session: Session) -> None:
    await agent.clock.advance((await agent.fail(session)).session.restart_delay)
    await agent.reached(session.internal_id, State.RUNNING)


@pytest.mark.parametrize(
    ("delay", "ended_for", "left"),
    [
        (8, 0, 8),
        (8, 5, 3),
        (8, 8, 1),  # the engine may have refused it: never without a pause
        (8, 3600, 1),
        (1, 0, 1),
        (8, -3600, 8),  # the wall clock was set back
    ],
)
def test_delay_begins_at_the_end_of_the_run(delay: float, ended_for: float, left: float) -> None:
    assert restarts.remaining_delay(delay, ended_for) == left


async def test_f04_an_agent_that_is_killed_again_and_again_puts_no_restart_off(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        for _ in range(3):
            await _fail_and_restart(agent, session)
        await agent.fail(session)
    for _ in range(2):
        async with host() as agent:
            life = agent.sessions.life(session.internal_id)
            assert life.session.restart_delay == 8
            await host.clock.advance(3)
            assert life.session.state is State.RESTARTING
    async with host() as agent:
        await host.clock.advance(2)
        life = await agent.reached(session.internal_id, State.RUNNING)
        assert life.session.restart_count == 4
        await assert_survived(agent)


@pytest.mark.parametrize("ends_meanwhile", [False, True])
async def test_f03_a_restart_that_nobody_recorded_is_counted_and_not_done_again(
    host: Host, ends_meanwhile: bool
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await _fail_and_restart(agent, session)
        await agent.fail(session)
        agent.steps.hold("restart.waiting")
        await host.clock.advance(2)
        await agent.steps.reached("restart.waiting")
    process = (await host.engine.inspect(session.container)).process
    if ends_meanwhile:
        host.engine.end(session.container, 143, reports=False)
    async with host() as agent:
        life = agent.sessions.life(session.internal_id)
        await host.clock.advance(2)
        await life.wait_for(lambda now: now.restart_count == 2)
        assert life.session.state == State.RUNNING
        assert (life.session.process == process) is not ends_meanwhile
        # What ended while it waited was no run.
        assert [run.delay for run in life.session.failed_runs] == [1, 2]
        assert host.engine.executed == {session.container: 3}
        await assert_survived(agent)


async def test_agent_downtime_does_not_count_as_run_time(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await _fail_and_restart(agent, session)
    host.engine.end(session.container, 1)
    await host.clock.advance(2 * restarts.STEADY_SECONDS)
    async with host() as agent:
        life = await agent.reached(session.internal_id, State.RESTARTING)
        assert life.session.restart_delay == 2


async def test_external_restart_is_not_counted(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await host.clock.advance(5)
        life = agent.sessions.life(session.internal_id)
        host.engine.end(session.container, 0)
        host.engine.start_from_outside(session.container)
        await life.wait_for(lambda now: now.process not in {None, session.process})
        await agent.fail(session)
    async with host() as agent:
        await host.clock.advance(0.5)
        now = agent.now(session.internal_id)
        assert now.state == State.RESTARTING
        assert now.restart_count == 0


async def test_game_that_fails_right_after_its_restart_is_restarted(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.steps.hold("restart.handed")
    life = await agent.fail(session, then=1)
    await agent.steps.reached("restart.handed")
    agent.engine.lose_process(session.container)
    agent.steps.release("restart.handed")
    await agent.clock.advance(0.1)
    assert len(life.session.failed_runs) == 1  # the engine has not confirmed the end
    agent.engine.end(session.container, 1)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: len(now.failed_runs) == 2)
    await agent.clock.advance(2)
    await agent.reached(session.internal_id, State.RUNNING)
    assert life.session.restart_count == 2
    assert life.session.process is not None
    await assert_survived(agent)


@pytest.mark.parametrize("step", ["restart.waiting", "restart.saved"])
async def test_container_that_ends_before_its_hand_over_is_started_again(
    agent: Agent, step: str
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.steps.hold(step)
    life = await agent.fail(session, then=1)
    await agent.steps.reached(step)
    agent.engine.end(session.container, 143, reports=False)
    agent.steps.release(step)
    await agent.clock.advance(5)
    assert life.session.state is State.RUNNING
    assert life.session.restart_count == 1
    assert len(life.session.failed_runs) == 1
    assert agent.engine.executed == {session.container: 2}
    await assert_survived(agent)


async def test_restart_is_recorded_before_its_hand_over(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.hold("hand_over")
    life = await agent.fail(session, then=1)
    await agent.engine.held("hand_over")
    assert life.session.state is State.RESTARTING  # in memory: it may still be refused
    record = agent.recorded(session.internal_id)
    assert record.state is State.RUNNING
    assert record.restart_count == 1
    assert record.process == (await agent.engine.inspect(session.container)).process
    assert record.start_time == agent.clock.time()
    agent.engine.release("hand_over")
    await agent.reached(session.internal_id, State.RUNNING)


async def test_restart_whose_program_is_gone_is_final(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.cannot_execute["/game"] = ("/game is missing", 127)
    await agent.fail(session, then=1)
    dead = (await agent.reached(session.internal_id, State.DEAD)).session
    assert dead.detail == "cannot restart: cannot run the image: /game is missing"
    assert dead.restart_count == 0
    assert agent.engine.living == set()
    assert agent.nothing_is_held()


@pytest.mark.parametrize("step", ["start", "restart.waiting", "restart.saved"])
async def test_no_step_of_a_restart_comes_after_a_stop(agent: Agent, step: str) -> None:
    held = agent.engine if step == "start" else agent.steps
    session = await agent.sessions.start(an_id(), a_spec(restart=True, stop_grace=30.0))
    held.hold(step)
    await agent.fail(session, then=1)
    reached = agent.engine.held(step) if step == "start" else agent.steps.reached(step)
    await reached
    stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await until_idle()
    held.release(step)
    ended = await stop
    assert ended.state is State.EXITED
    assert ended.end_reason is EndReason.STOPPED
    assert ended.restart_count == 0
    assert agent.engine.executed == {session.container: 1}
    assert agent.engine.living == set()
    assert agent.nothing_is_held()


async def test_restart_that_cannot_be_handed_over_leaves_no_container_waiting(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    failed = HandOverFailedError("hand over", "no process reads")
    agent.engine.fail_next("hand_over", failed, times=restarts.TRIES)
    await agent.fail(session, then=60)
    dead = (await agent.reached(session.internal_id, State.DEAD)).session
    assert dead.detail == "cannot restart: cannot hand over: no process reads"
    assert agent.engine.living == set()
    assert agent.engine.ports.published == {}


async def test_restart_on_a_full_disk_is_counted_by_the_next_agent(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its record could not be written, but its game was executed."""
    full = mock.AsyncMock(side_effect=DiskFullError("/state", "no space left"))
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await agent.fail(session)
        with monkeypatch.context() as patch:
            patch.setattr(agent.records, "save", full)
            await host.clock.advance(1)
            life = await agent.reached(session.internal_id, State.RUNNING)
            process = life.session.process
    async with host() as agent:
        life = await agent.reached(session.internal_id, State.RUNNING)
        assert life.session.process == process
        assert life.session.restart_count == 1
        assert host.engine.executed == {session.container: 2}
        await assert_survived(agent)


async def test_run_begins_at_its_hand_over(host: Host) -> None:
    """Not when its container was started: the agent was away in between."""
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        agent.steps.hold("restart.saved")
        await agent.fail(session, then=1)
        await agent.steps.reached("restart.saved")
    await host.clock.advance(2 * restarts.STEADY_SECONDS)
    async with host() as agent:
        life = agent.sessions.life(session.internal_id)
        await until(lambda: host.engine.executed[session.container] == 2)
        await host.clock.advance(1)
        assert life.session.start_time == host.clock.time() - 1
        life = await agent.fail(session)
        assert life.session.restart_delay == 2  # as after a short run


async def test_f34_a_restart_that_finds_no_room_on_the_engines_disk_is_tried_again(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    full = DiskFullError("the engine's storage", "no space left")
    agent.engine.fail_next("start", full, times=restarts.TRIES - 1)
    life = await agent.fail(session, then=60)
    assert life.session.state == State.RUNNING
    assert life.session.restart_count == 1
    await assert_survived(agent)


@pytest.mark.parametrize("is_stopped", [False, True])
async def test_restart_that_the_engine_forgot_is_ended(agent: Agent, is_stopped: bool) -> None:
    """The agent ends it before the next restart, or during a stop."""
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.answer_lost_next("start")
    agent.engine.fail_next("end_forgotten", EngineUnavailableError("refused"))
    life = await agent.fail(session)
    await agent.clock.advance(1)
    assert agent.engine.count("end_forgotten") == 1
    agent.engine.forget_start(session.container)
    if is_stopped:
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
        assert agent.engine.living == set()
    else:
        await agent.clock.advance(2)
        await agent.reached(session.internal_id, State.RUNNING)
        assert agent.engine.living == {life.session.process}
        assert life.session.restart_count == 1


async def test_stop_works_while_waits_fail(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    wait_end = agent.engine.wait_end
    tried = asyncio.Event()

    async def failing(process: Process, channel: Path | None = None) -> ReportedEnd | None:
        if agent.now(session.internal_id).state is State.RUNNING:
            tried.set()
            raise EngineTimeoutError("inspect")
        return await wait_end(process, channel)

    await agent.fail(session)
    monkeypatch.setattr(agent.engine, "wait_end", failing)
    await agent.clock.advance(1)
    await tried.wait()
    stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await until(stop.done)
    assert stop.result().state is State.EXITED
