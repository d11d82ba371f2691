import asyncio
from pathlib import Path
from unittest import mock

import pytest

from agent.domain import errors
from agent.domain.containers.engine import ReportedEnd
from agent.domain.sessions import restarts
from agent.domain.sessions.session import Process
from agent.sessions.ending import KILL_SECONDS
from agent.state.drain import DrainOrder
from agent.state.tombstones import TOMBSTONE_SECONDS
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, Host, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, State


async def test_game_that_ignores_sigterm_is_killed_after_the_grace_period(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.ignores_sigterm.add(f"tiltyard-{session.internal_id}")
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(9)
    assert agent.now(session.internal_id).state is State.SHUTTINGDOWN
    assert not stopper.done()
    await agent.clock.advance(2)
    assert (await stopper).exit_code == 137


REFUSALS = [errors.PortTakenError("udp", 20000), errors.EngineError("start", "as scripted")]


async def test_session_is_dead_after_repeatedly_refused_restarts(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.fail_next("start", REFUSALS[0], times=restarts.TRIES)
    life = await agent.fail(session, then=15)
    assert life.session.state is State.RESTARTING
    await agent.clock.advance(5)
    await agent.reached(session.internal_id, State.DEAD)
    assert life.session.end_reason is EndReason.ENGINE_ERROR
    assert "cannot restart" in life.session.detail
    assert agent.nothing_is_held()


@pytest.mark.parametrize("refusal", REFUSALS, ids=["port", "engine"])
async def test_restart_succeeds_after_refusals(agent: Agent, refusal: errors.AgentError) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    for round_number in (1, 2):  # a success resets the count
        agent.engine.fail_next("start", refusal, times=restarts.TRIES - 1)
        life = await agent.fail(session, then=30)
        assert life.session.state == State.RUNNING
        assert life.session.restart_count == round_number
        assert life.session.ports == session.ports


@pytest.mark.parametrize("refused", [False, True])
async def test_stop_during_restart_delay_is_final(agent: Agent, *, refused: bool) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    if refused:
        agent.engine.fail_next("start", errors.PortTakenError("udp", 20000))
    await agent.fail(session, then=1.5 if refused else 0.5)
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert ended.state == State.EXITED
    assert ended.end_reason == EndReason.STOPPED


async def test_restart_of_an_unrunnable_image_is_not_retried(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.fail_next("start", errors.ImageCannotRunError("as scripted"))
    await agent.fail(session, then=1)
    await agent.reached(session.internal_id, State.DEAD)


async def test_dead_session_reports_the_end_of_its_last_run(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.fail_next("start", errors.ImageCannotRunError("as scripted"))
    agent.engine.end(session.container, 137, oom=True)
    await agent.reached(session.internal_id, State.RESTARTING)
    await agent.clock.advance(1)
    dead = (await agent.reached(session.internal_id, State.DEAD)).session
    assert dead.end_reason is EndReason.ENGINE_ERROR
    assert dead.exit_code == 137
    assert dead.oom_killed is True
    assert dead.restart_count == 0
    assert [moment.state.value for moment in dead.timeline] == [
        "created",
        "running",
        "restarting",
        "dead",
    ]


async def test_failed_wait_is_not_the_end(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name = f"tiltyard-{session.internal_id}"
    wait_end = agent.engine.wait_end
    agent.engine.ignores_sigterm.add(name)
    failures = [errors.EngineTimeoutError("inspect")]

    async def failing(process: Process, channel: Path | None = None) -> ReportedEnd | None:
        if failures and agent.now(session.internal_id).state is not State.RUNNING:
            raise failures.pop()
        return await wait_end(process, channel)

    monkeypatch.setattr(agent.engine, "wait_end", failing)
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    for _ in range(4):
        await agent.clock.advance(10)
    ended = await stopper
    assert ended.state == State.EXITED
    assert ended.exit_code == 137
    assert (await agent.engine.inspect(name)).process is None


@pytest.mark.parametrize("lost", ["start", "hand_over"])
async def test_stop_ends_a_game_after_an_unknown_restart(agent: Agent, lost: str) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.answer_lost_next(lost)
    life = await agent.fail(session)
    await agent.clock.advance(1)
    while (await agent.engine.inspect(session.container)).process is None:
        await asyncio.sleep(0)
    assert not life.session.state.ended
    ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert ended.state is State.EXITED
    assert (await agent.engine.inspect(session.container)).process is None
    assert agent.nothing_is_held()


@pytest.mark.parametrize("reason", [EndReason.TTL, EndReason.DRAIN, EndReason.STOPPED])
async def test_f09_an_end_that_is_due_comes_while_the_engine_hangs_since_the_start_of_the_agent(
    host: Host, reason: EndReason
) -> None:
    async with host() as agent:
        due = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        if reason is EndReason.DRAIN:
            await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=50))
    host.engine.unavailable = True
    async with host(reconcile=False) as agent:
        if reason is EndReason.STOPPED:
            stop = asyncio.create_task(agent.sessions.stop(due.internal_id, reason))
        else:
            await host.clock.advance(61 if reason is EndReason.TTL else 51)
            agent.sessions.end_due()
        await until(lambda: due.process not in host.engine.living)
        assert not agent.sessions.reconciled
        assert agent.now(due.internal_id).state is State.SHUTTINGDOWN
        host.engine.unavailable = False
        await agent.pass_over()
        await host.clock.advance(2)
        ended = agent.now(due.internal_id)
        assert ended.state == State.EXITED
        assert ended.exit_code == 143
        assert ended.end_reason == reason
        if reason is EndReason.STOPPED:
            await stop
        await agent.sessions.drains.order(DrainOrder(2, draining=False))
        await assert_survived(agent)


@pytest.mark.parametrize("seconds", [30, 600])
async def test_f09_a_hang_of_a_running_agents_engine_ends_what_is_due_and_delays_the_rest(
    agent: Agent, seconds: float
) -> None:
    due = await agent.sessions.start(an_id(), a_spec(ttl=20.0))
    failing = await agent.sessions.start(an_id(), a_spec(restart=True))
    other = await agent.sessions.start(an_id(), a_spec())
    asked = an_id()
    async with agent.timed():
        agent.engine.unavailable = True
        with pytest.raises(errors.EngineUnavailableError):
            await agent.sessions.start(asked, a_spec())
        agent.engine.end(failing.container, 1)
        await agent.clock.advance(seconds)
        assert due.process not in agent.engine.living
        assert agent.now(due.internal_id).state is State.SHUTTINGDOWN
        assert agent.now(other.internal_id).state is State.RUNNING
        agent.engine.unavailable = False
        await agent.clock.advance(30)
        assert agent.now(due.internal_id).end_reason is EndReason.TTL
        await agent.reached(failing.internal_id, State.RUNNING)
        assert (await agent.sessions.start(asked, a_spec())).state is State.RUNNING
    await assert_survived(agent)


async def test_f09_of_another_boot_no_process_is_touched_before_the_engine_tells_of_it(
    host: Host,
) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    host.clock.reboot()
    await host.clock.advance(61)
    host.engine.unavailable = True
    async with host(reconcile=False) as agent:
        agent.sessions.end_due()
        await host.clock.advance(60)
        assert session.process in host.engine.living
        host.engine.unavailable = False
        await agent.pass_over()
        await host.clock.advance(2)
        assert agent.now(session.internal_id).end_reason is EndReason.TTL
        await assert_survived(agent)


async def test_unsent_sigkill_does_not_count(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.unavailable = True
    refused = errors.EngineError("kill", "the agent lacks CAP_KILL")
    with mock.patch.object(agent.engine, "signal_process", side_effect=refused):
        stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        for _ in range(5):
            await agent.clock.advance(KILL_SECONDS)
        assert agent.now(session.internal_id).state is State.SHUTTINGDOWN
        agent.engine.unavailable = False
        await agent.clock.advance(KILL_SECONDS)
        await agent.clock.advance(KILL_SECONDS)
        assert (await stop).exit_code == 137


async def test_unkillable_process_keeps_its_reservation(host: Host) -> None:
    internal_id = an_id()
    name = f"tiltyard-{internal_id}"
    async with host() as agent:
        await agent.sessions.start(internal_id, a_spec())
        host.engine.ignores_sigterm.add(name)
        host.engine.survives_sigkill.add(name)
        stop = asyncio.create_task(agent.sessions.stop(internal_id, EndReason.STOPPED))
        for _ in range(2):
            await host.clock.advance(KILL_SECONDS)
        with pytest.raises(errors.CannotKillError):
            await stop
        assert agent.now(internal_id).state is State.DEAD
        assert not agent.nothing_is_held()
    # The next run of the agent knows, too.
    async with host() as agent:
        assert not agent.nothing_is_held()
        await host.clock.advance(KILL_SECONDS)
        with pytest.raises(errors.CannotKillError):
            await agent.sessions.stop(internal_id, EndReason.STOPPED)
        host.engine.survives_sigkill.clear()
        for _ in range(2):
            await host.clock.advance(KILL_SECONDS)
        await until(agent.nothing_is_held)
        dead = await agent.sessions.stop(internal_id, EndReason.STOPPED)
        assert dead.state == State.DEAD
        assert dead.process is None
        await until_sealed(agent, internal_id)


async def test_stop_before_its_start_refuses_the_start_also_after_a_restart(host: Host) -> None:
    internal_id = an_id()
    async with host() as agent:
        with pytest.raises(errors.SessionNotFoundError):
            await agent.sessions.stop(internal_id, EndReason.STOPPED)
    async with host() as agent:
        with pytest.raises(errors.SessionStoppedError):
            await agent.sessions.start(internal_id, a_spec())
        await host.clock.advance(TOMBSTONE_SECONDS)
        assert (await agent.sessions.start(internal_id, a_spec())).state is State.RUNNING
