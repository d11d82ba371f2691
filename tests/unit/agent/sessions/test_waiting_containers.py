"""Containers that wait after a kill of the agent, or as others started them: one rule for all."""

import asyncio
import shutil

import pytest

from agent.domain.containers.engine import container_name
from agent.domain.errors import (
    EngineUnavailableError,
    HandOverFailedError,
    SessionStoppedError,
)
from agent.domain.sessions.session import Session
from agent.state.tombstones import Tombstones
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.tasks import let_go
from tiltyard.contract import EndReason, State


async def _killed_at(host: Host, step: str, **changes: object) -> Session:
    """The record of a session whose agent was killed at a step of its start."""
    internal_id = an_id()
    async with host() as agent:
        starter = await agent.held_at(step, agent.sessions.start(internal_id, a_spec(**changes)))
        session = agent.recorded(internal_id)
        await let_go(starter)
    return session


# -- after a kill of the agent -------------------------------------------------------------------


@pytest.mark.parametrize("step", ["start.recorded", "start.created", "start.waiting"])
async def test_container_of_an_unrecorded_run_is_removed(host: Host, step: str) -> None:
    await _killed_at(host, step)
    async with host() as agent:
        await until_idle()
        assert agent.sessions.all() == []
        assert host.engine.count("hand_over") == 0
        assert host.engine.living == set()
        await assert_nothing_is_left(agent)


async def test_container_of_a_recorded_run_is_handed_its_program_by_the_next_agent(
    host: Host,
) -> None:
    session = await _killed_at(host, "start.saved", ttl=600.0)
    await host.clock.advance(5)
    async with host() as agent:
        await until_idle()
        assert host.engine.executed == {session.container: 1}
        await agent.ready(session.internal_id)
        now = agent.now(session.internal_id)
        assert now.process == session.process
        assert now.start_time == host.clock.time()
        assert now.deadline == session.deadline
        assert now.restart_count == 0
        assert agent.recorded(session.internal_id).start_time == now.start_time
    async with host() as agent:
        await agent.pass_over()
        assert host.engine.executed == {session.container: 1}
        await assert_survived(agent)


async def test_game_that_was_executed_is_not_handed_its_program_again(host: Host) -> None:
    session = await _killed_at(host, "start.handed")
    async with host() as agent:
        await agent.ready(session.internal_id)
        assert agent.now(session.internal_id).state is State.RUNNING
        assert host.engine.count("hand_over") == 1
        await assert_survived(agent)


async def test_hand_over_that_has_begun_is_never_repeated(host: Host) -> None:
    session = await _killed_at(host, "start.saved")
    host.engine.hand(session.container)
    host.engine.calls.clear()
    async with host() as agent:
        await agent.pass_over(after=30)
        assert agent.now(session.internal_id).ready_time is None
        host.engine.execute(session.container)
        await host.clock.advance(2)
        await agent.ready(session.internal_id)
        assert host.engine.count("hand_over") == 0
        assert host.engine.executed == {session.container: 1}
        await assert_survived(agent)


@pytest.mark.parametrize("restart", [False, True])
async def test_hand_over_that_was_cut_off_is_the_end_of_a_run(
    host: Host, *, restart: bool
) -> None:
    session = await _killed_at(host, "start.saved", restart=restart)
    host.engine.hand(session.container)
    host.engine.end(session.container, 125, reports=False)
    async with host() as agent:
        if not restart:
            ended = (await until_sealed(agent, session.internal_id)).session
            assert ended.state is State.EXITED
            assert ended.exit_code == 125
            assert not host.engine.executed
            return
        life = await agent.reached(session.internal_id, State.RESTARTING)
        assert life.session.exit_code == 125
        await host.clock.advance(1)
        await agent.reached(session.internal_id, State.RUNNING)
        assert host.engine.executed == {session.container: 1}


async def test_stop_ends_a_waiting_container_without_its_program(host: Host) -> None:
    session = await _killed_at(host, "start.saved", restart=True)
    async with host(reconcile=False) as agent:
        stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        await until_idle()
        await agent.pass_over()
        ended = await stop
        assert ended.state is State.EXITED
        assert ended.end_reason is EndReason.STOPPED
        assert host.engine.count("hand_over") == 0
        assert agent.nothing_is_held()


async def test_stop_during_a_hand_over_to_a_waiting_container_prevents_it(host: Host) -> None:
    session = await _killed_at(host, "start.saved")
    async with host(reconcile=False) as agent:
        await agent.held_at("restart.saved", agent.pass_over())
        stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        await until_idle()
        agent.steps.release("restart.saved")
        assert (await stop).state is State.EXITED
        assert host.engine.count("hand_over") == 0
        assert agent.nothing_is_held()


async def test_waiting_container_of_a_session_that_was_stopped_is_ended(host: Host) -> None:
    session = await _killed_at(host, "start.saved", restart=True)
    async with host(reconcile=False) as agent:
        stopped = session.with_changes(stop_reason=EndReason.TTL)
        await agent.records.mark_stop(stopped)  # as on a full disk
    async with host() as agent:
        ended = (await until_sealed(agent, session.internal_id)).session
        assert ended.state is State.EXITED
        assert ended.end_reason is EndReason.TTL
        assert host.engine.count("hand_over") == 0


async def test_engine_that_is_away_delays_the_hand_over(host: Host) -> None:
    session = await _killed_at(host, "start.saved")
    async with host() as agent:
        host.engine.fail_next("inspect", EngineUnavailableError("gone"), times=3)
        await host.clock.advance(10)
        await until(lambda: host.engine.executed == {session.container: 1})
        await agent.ready(session.internal_id)
        await assert_survived(agent)


async def test_waiting_container_that_ends_first_is_not_started_again(host: Host) -> None:
    session = await _killed_at(host, "start.saved")
    host.engine.hold("inspect")
    async with host() as agent:
        await host.engine.held("inspect")
        host.engine.end(session.container, 143, reports=False)
        host.engine.release("inspect")
        ended = (await until_sealed(agent, session.internal_id)).session
        assert ended.state is State.EXITED
        assert ended.exit_code == 143
        assert host.engine.count("start") == 1
        assert not host.engine.executed


@pytest.mark.parametrize("restart", [False, True])
async def test_waiting_container_that_cannot_be_handed_over_is_a_failed_run(
    host: Host, *, restart: bool
) -> None:
    session = await _killed_at(host, "start.saved", restart=restart)
    host.engine.fail_next("hand_over", HandOverFailedError("hand over", "no process reads"))
    async with host() as agent:
        await host.clock.advance(5)
        if restart:
            life = await agent.reached(session.internal_id, State.RUNNING)
            assert life.session.restart_count == 1
            assert host.engine.executed == {session.container: 1}
        else:
            life = await agent.reached(session.internal_id)
            assert life.session.exit_code == 137
            assert not host.engine.executed
        await assert_survived(agent)


# -- containers that others start ----------------------------------------------------------------


@pytest.mark.parametrize("agent_is_there", [False, True])
async def test_container_that_others_restart_is_handed_its_program_once(
    host: Host, *, agent_is_there: bool
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await host.clock.advance(100)
        if agent_is_there:
            host.engine.start_from_outside(session.container)
            await until_idle()
            assert host.engine.executed == {session.container: 2}
    if not agent_is_there:
        host.engine.start_from_outside(session.container)
    async with host() as agent:
        await until_idle()
        assert host.engine.executed == {session.container: 2}
        now = agent.now(session.internal_id)
        assert now.state is State.RUNNING
        assert now.process != session.process
        assert now.start_time == host.clock.time()
        assert now.restart_count == 0
        await assert_survived(agent)
        assert host.engine.executed == {session.container: 2}


async def test_ended_session_that_others_start_is_not_handed_its_program(agent: Agent) -> None:
    session = await agent.ended()
    agent.engine.start_from_outside(session.container)
    await agent.pass_over()
    assert agent.engine.living == set()
    assert agent.engine.executed == {session.container: 1}


# -- lost files ----------------------------------------------------------------------------------


async def test_session_without_its_record_keeps_running_and_does_not_restart(host: Host) -> None:
    """Its arguments and environment were in the record alone."""
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        await agent.lose_record(session.internal_id)
    async with host() as agent:
        life = await agent.reached(session.internal_id, State.RUNNING)
        assert life.session.process == session.process
        host.engine.end(session.container, 1)
        ended = (await until_sealed(agent, session.internal_id)).session
        assert ended.state is State.EXITED
        assert ended.exit_code == 1
        assert host.engine.executed == {session.container: 1}


async def test_waiting_container_without_a_record_is_an_orphan(host: Host) -> None:
    session = await _killed_at(host, "start.saved")
    async with host(reconcile=False) as agent:
        await agent.records.delete(session)
    async with host() as agent:
        assert agent.sessions.all() == []
        await agent.pass_over()
        await agent.pass_over(after=61)
        assert host.engine.living == set()
        assert not host.engine.executed
        await assert_nothing_is_left(agent)


async def test_container_restarted_by_others_after_its_record_was_lost_is_ended(
    host: Host,
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        await agent.lose_record(session.internal_id)
    async with host() as agent:
        await agent.reached(session.internal_id, State.RUNNING)
        host.engine.start_from_outside(session.container)
        await host.clock.advance(2)
        ended = (await until_sealed(agent, session.internal_id)).session
        assert ended.state is State.EXITED
        assert host.engine.executed == {session.container: 1}
        assert host.engine.living == set()


async def test_channel_that_a_power_cut_has_lost_is_there_again_for_a_restart(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    channel = agent.records.channel(session)
    await asyncio.to_thread(shutil.rmtree, channel)
    await agent.fail(session, then=1)
    await agent.reached(session.internal_id, State.RUNNING)
    assert (channel / "start").is_fifo()
    assert (channel / "report").is_fifo()


async def test_tombstone_outlives_a_waiting_container(host: Host) -> None:
    session = await _killed_at(host, "start.waiting")
    async with host(reconcile=False) as agent:
        await Tombstones(agent.records, host.clock).bury(session.internal_id)
    async with host() as agent:
        with pytest.raises(SessionStoppedError):
            await agent.sessions.start(session.internal_id, a_spec())
        await until(lambda: container_name(session.internal_id) not in _names(host))


def _names(host: Host) -> list[str]:
    return [held.name for held in host.engine.all]
