"""Lost and unexpected responses of the engine."""

import asyncio
import gc
import logging

import pytest

from agent.domain import errors
from agent.domain.containers.engine import container_name, name_of
from agent.domain.sessions.session import Session
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, pulled, until
from tests.support.agent.samples import IMAGE, a_container_spec, a_spec, an_id
from tiltyard.contract import EndReason, State


def _named(session: Session) -> tuple[object, ...]:
    """The fields of a session that its task does not change."""
    return session.internal_id, session.state, session.ports, session.container


async def _assert_alone(agent: Agent, session: Session) -> None:
    """One container runs, and only this session's ports are held and published."""
    [container] = await agent.engine.list(agent.runtime.agent_id)
    assert container.process is not None
    assert container.container == session.container
    assert container.name == container_name(session.internal_id)
    assert [_named(found) for found in agent.sessions.all()] == [_named(session)]
    assert set(agent.engine.ports.published) == {(p.protocol.value, p.host) for p in session.ports}
    pool = agent.reservations.ports
    for port in session.ports:
        assert pool.free(port.protocol) == pool.last - pool.first


# -- F14: the call took place, its response is lost ---------------------------------------------


@pytest.mark.parametrize("call", ["create", "start"])
async def test_f14_a_start_whose_answer_is_lost_is_read_again_and_goes_on(
    agent: Agent, call: str
) -> None:
    agent.engine.answer_lost_next(call)
    session = await agent.sessions.start(an_id(), a_spec())
    assert session.state is State.RUNNING
    assert agent.engine.count("create") == 1
    assert agent.engine.executed == {session.container: 1}
    await _assert_alone(agent, session)
    assert _named(await agent.sessions.start(session.internal_id, a_spec())) == _named(session)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    await assert_nothing_is_left(agent)


async def test_f14_a_create_that_took_place_after_it_was_read_again_leaves_nothing(
    agent: Agent,
) -> None:
    """The engine completes the call after its timeout."""
    internal_id = an_id()
    agent.engine.fail_next("create", errors.EngineTimeoutError("create"))
    with pytest.raises(errors.EngineTimeoutError):
        await agent.sessions.start(internal_id, a_spec())
    await _create_behind_its_back(agent, internal_id)
    await agent.pass_over()
    await agent.pass_over(after=61)
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize("call", ["create", "start"])
async def test_f14_an_agent_killed_over_a_lost_answer_leaves_nothing(
    host: Host, call: str
) -> None:
    """The container is created, or waits: its game has not been executed."""
    internal_id = an_id()
    async with host() as agent:
        host.engine.answer_lost_next(call)
        start = await host.engine.held_in("inspect", agent.sessions.start(internal_id, a_spec()))
        start.cancel()
    host.engine.release("inspect")
    async with host() as agent:
        await agent.pass_over()
        await until(agent.nothing_is_held)
        await assert_nothing_is_left(agent)
        assert not host.engine.executed
        session = await agent.sessions.start(internal_id, a_spec())
        await _assert_alone(agent, session)
        assert host.engine.executed == {session.container: 1}


@pytest.mark.parametrize("signal", ["SIGTERM", "SIGKILL"])
async def test_f14_a_kill_whose_answer_is_lost_ends_the_session_once(
    agent: Agent, signal: str
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    if signal == "SIGKILL":
        agent.engine.ignores_sigterm.add(name_of(session))
        stop = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
        await agent.clock.advance(agent.runtime.settings.stop_grace / 2)
        agent.engine.answer_lost_next("kill")
        await agent.clock.advance(agent.runtime.settings.stop_grace)
        ended = await stop
    else:
        agent.engine.answer_lost_next("kill")
        ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    expected = 137 if signal == "SIGKILL" else 143
    assert ended.state == State.EXITED
    assert ended.exit_code == expected
    assert ended.restart_count == 0
    assert agent.engine.count("start") == 1
    assert agent.nothing_is_held()


async def test_f14_a_removal_whose_answer_is_lost_is_told_when_it_is_known(agent: Agent) -> None:
    session = await agent.ended()
    agent.engine.answer_lost_next("remove")
    with pytest.raises(errors.EngineTimeoutError):
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert not agent.now(session.internal_id).container_removed
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    await assert_nothing_is_left(agent)


async def test_failed_start_that_cannot_be_undone_yet_holds_no_start_slot(agent: Agent) -> None:
    agent.engine.fail_next("create", errors.EngineError("create", "no"))
    agent.engine.fail_next("remove", errors.EngineError("remove", "device or resource busy"))
    with pytest.raises(errors.EngineError):
        await agent.sessions.start(an_id(), a_spec())
    assert agent.sessions.lives
    assert agent.sessions.starting() == ()


async def test_f14_an_undoing_whose_answer_is_lost_gives_everything_back(agent: Agent) -> None:
    unknown = errors.EngineUnavailableError("gone")
    agent.engine.answer_lost_next("start")
    agent.engine.fail_next("inspect", unknown)
    agent.engine.fail_next("remove", unknown)
    agent.engine.answer_lost_next("remove")
    with pytest.raises(errors.EngineUnavailableError):
        await agent.sessions.start(an_id(), a_spec())
    assert not agent.nothing_is_held()  # the game runs
    [container] = await agent.engine.list(agent.runtime.agent_id)
    assert container.is_running
    assert agent.sessions.started() == []
    await agent.clock.advance(31)
    await assert_nothing_is_left(agent)


# -- F15: the name is taken, or the image has gone ----------------------------------------------


async def _create_behind_its_back(agent: Agent, internal_id: str) -> str:
    """Let the engine complete an earlier create of this id."""
    agent_id = agent.runtime.agent_id
    spec = a_container_spec(internal_id=internal_id, agent_id=agent_id, image=IMAGE, record="")
    return await agent.engine.create(spec)


async def test_f15_what_has_the_name_of_a_start_makes_way_for_it(agent: Agent) -> None:
    """It can only be an earlier attempt's, whose ports and label are outdated."""
    internal_id = an_id()
    left = await _create_behind_its_back(agent, internal_id)
    session = await agent.sessions.start(internal_id, a_spec())
    assert session.container != left
    await _assert_alone(agent, session)


async def test_f15_a_name_that_stays_taken_is_a_refusal_that_leaves_nothing(agent: Agent) -> None:
    internal_id = an_id()
    taken = errors.ContainerExistsError(container_name(internal_id))
    agent.engine.fail_next("create", taken, times=2)
    with pytest.raises(errors.ContainerExistsError):
        await agent.sessions.start(internal_id, a_spec())
    assert agent.engine.count("create") == 2
    await assert_nothing_is_left(agent)


async def test_f15_an_image_that_vanishes_before_the_create_is_refused_told_and_pulled_once(
    agent: Agent,
) -> None:
    """The control plane tries another host, and this one pulls after it reports the loss."""
    internal_id = an_id()
    start = await agent.held_at("start.recorded", agent.sessions.start(internal_id, a_spec()))
    agent.engine.image_store.lose(IMAGE)
    agent.steps.release("start.recorded")
    with pytest.raises(errors.ImageMissingError):
        await start
    await assert_nothing_is_left(agent)
    with agent.runtime.feed.subscribe() as watcher:
        await agent.pass_over()
        assert (await watcher.take(0)).host
    assert IMAGE not in agent.images.here
    agent.engine.image_store.registry.add(IMAGE)
    await asyncio.gather(*(pulled(agent.images, IMAGE) for _ in range(3)))
    assert agent.engine.count("pull") == 1
    await _assert_alone(agent, await agent.sessions.start(internal_id, a_spec()))


async def test_f15_a_pull_does_not_believe_that_a_lost_image_is_there(agent: Agent) -> None:
    agent.engine.image_store.lose(IMAGE)
    agent.engine.image_store.registry.add(IMAGE)
    assert IMAGE in agent.images.here  # no pass since
    await pulled(agent.images, IMAGE)
    await agent.sessions.start(an_id(), a_spec())


# -- F12: events that never arrive --------------------------------------------------------------


async def test_f12_five_hundred_lost_events_are_made_up_for_by_one_pass(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    """The list has what the engine's ring buffer has dropped."""
    caplog.set_level(logging.ERROR)
    gc.collect()
    caplog.clear()  # of earlier tests
    sessions = [await agent.sessions.start(an_id(), a_spec(ports=())) for _ in range(100)]
    for session in sessions:
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    async with agent.engine.events(agent.runtime.agent_id) as events:
        for session in sessions:
            for _ in range(4):
                agent.engine.start_from_outside(name_of(session))
                agent.engine.end(name_of(session), 1)
            agent.engine.start_from_outside(name_of(session))
        for _ in range(500):
            await anext(events)
    await agent.pass_over()
    found = await agent.engine.list(agent.runtime.agent_id)
    assert len(found) == len(sessions)
    assert not any(container.process for container in found)
    assert agent.nothing_is_held()
    assert caplog.records == []
