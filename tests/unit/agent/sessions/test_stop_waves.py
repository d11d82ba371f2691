"""Which processes of a session get the signal of a stop, and what is recorded of it."""

import asyncio
from dataclasses import replace
from unittest import mock

import pytest

from agent.domain import errors
from agent.domain.sessions.session import Session
from agent.sessions.ending import end_process
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tiltyard.contract import EndReason, State
from tiltyard.ends import StopResult


async def _stopped(agent: Agent, session: Session) -> Session:
    """Stop a session whose grace period is over at the latest before this returns."""
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(11)
    return await stopper


async def test_game_behind_a_script_gets_the_signal_once_the_script_has_ended(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    script = agent.engine.program_of(session.container)
    game = agent.engine.add_process(
        session.container, "game", parent=script.member.process, ends_by=frozenset()
    )
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(9)
    assert script.got == ["SIGTERM"]
    assert game.got == ["SIGTERM"]
    agent.engine.end_process(session.container, game, 0)
    ended = await stopper
    assert ended.exit_code == 143  # the script's
    assert ended.stop == StopResult("SIGTERM", delivered=True)


async def test_game_below_a_script_that_keeps_the_signal_gets_it_after_a_third_of_the_grace(
    agent: Agent,
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.ignores_sigterm.add(session.container)
    script = agent.engine.program_of(session.container)
    game = agent.engine.add_process(session.container, "game", ends_by=frozenset())
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(3.3)
    assert game.got == []
    await agent.clock.advance(0.1)
    assert game.got == ["SIGTERM"]
    assert script.got == ["SIGTERM"]
    agent.engine.end_process(session.container, game, 0)
    await agent.clock.advance(1)
    agent.engine.end_process(session.container, script, 0)
    assert (await stopper).exit_code == 0


async def test_record_has_what_was_left_and_killed(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.add_process(session.container, "hangs", ends_by=frozenset())
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(11)
    ended = await stopper
    assert ended.exit_code == 137
    assert ended.stop == StopResult("SIGTERM", delivered=True, forced=True, killed=("hangs",))


async def test_f09_game_behind_a_script_is_stopped_while_the_engine_hangs(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    game = agent.engine.add_process(session.container, "game")
    agent.engine.unavailable = True
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await until(lambda: session.process not in agent.engine.living)
    assert game.got == ["SIGTERM"]
    agent.engine.unavailable = False
    await agent.clock.advance(2)
    assert (await stopper).exit_code == 143


async def test_without_the_right_to_signal_the_engine_is_asked(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    refused = errors.EngineError("kill", "the agent lacks CAP_KILL")
    with mock.patch.object(agent.engine, "signal_process", side_effect=refused):
        ended = await _stopped(agent, session)
    assert ended.exit_code == 143
    assert ended.stop == StopResult("SIGTERM", delivered=None)


async def test_processes_that_cannot_be_seen_are_stopped_through_their_init(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    unreadable = errors.EngineError("see the processes of a container", "as scripted")
    with mock.patch.object(agent.engine, "processes", side_effect=unreadable):
        ended = await _stopped(agent, session)
    assert ended.exit_code == 143


async def test_signal_that_a_game_blocks_is_not_delivered(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    game = agent.engine.program_of(session.container)
    game.ends_by = frozenset()
    game.member = replace(game.member, pending=1 << 14)
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(11)
    result = (await stopper).stop
    assert result == StopResult("SIGTERM", delivered=False, forced=True, killed=("game",))


async def test_without_a_grace_period_both_signals_are_sent_at_once(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    game = agent.engine.program_of(session.container)
    game.ends_by = frozenset({"SIGKILL"})
    settings = agent.runtime.settings.model_copy(update={"stop_grace": 0.0})
    runtime = replace(agent.runtime, settings=settings)
    assert session.process is not None
    end, result = await end_process(runtime, session, session.process)
    assert end is not None
    assert game.got == ["SIGTERM"]
    assert result.forced


@pytest.mark.parametrize(
    ("of_image", "of_application", "sent"),
    [
        ("", "", "SIGTERM"),
        ("SIGINT", "", "SIGINT"),
        ("SIGINT", "SIGHUP", "SIGHUP"),
        ("SIGRTMIN+3", "", "SIGRTMIN+3"),
    ],
)
async def test_signal_is_that_of_the_application_else_of_the_image(
    agent: Agent, of_image: str, of_application: str, sent: str
) -> None:
    agent.engine.stop_signals[IMAGE] = of_image
    session = await agent.sessions.start(an_id(), a_spec(stop_signal=of_application))
    game = agent.engine.program_of(session.container)
    game.ends_by = frozenset({sent})
    ended = await _stopped(agent, session)
    assert game.got == [sent]
    assert ended.stop == StopResult(sent, delivered=True)


async def test_restarted_agent_knows_the_signal_of_an_image_while_the_engine_hangs(
    host: Host,
) -> None:
    host.engine.stop_signals[IMAGE] = "SIGINT"
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    game = host.engine.program_of(session.container)
    host.engine.unavailable = True
    async with host(reconcile=False) as agent:
        await host.clock.advance(61)
        agent.sessions.end_due()
        await until(lambda: bool(game.got))
        assert game.got == ["SIGINT"]
        host.engine.unavailable = False


@pytest.mark.parametrize(
    ("asked", "given"),
    [
        (0.0, 10.0),
        (4.0, 4.0),
        (40.0, 40.0),
        (999.0, 60.0),
    ],
)
async def test_grace_is_that_of_the_application_up_to_the_hosts_bound(
    agent: Agent, asked: float, given: float
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(stop_grace=asked, ttl=100.0))
    agent.engine.ignores_sigterm.add(session.container)
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.DRAIN))
    await agent.clock.advance(given - 0.1)
    assert agent.now(session.internal_id).state is State.SHUTTINGDOWN
    await agent.clock.advance(1)
    assert (await stopper).exit_code == 137
