"""Which processes of a session get the signal of a stop, and what is recorded of it."""

import asyncio
from dataclasses import replace
from unittest import mock

from agent.domain import errors
from agent.domain.history import StopResult
from agent.sessions.ending import end_process
from tests.support.agent.hosts import Agent, until
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason


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
        ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert ended.exit_code == 143
    assert ended.stop == StopResult("SIGTERM", delivered=None)


async def test_processes_that_cannot_be_seen_are_stopped_through_their_init(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    unreadable = errors.EngineError("see the processes of a container", "as scripted")
    with mock.patch.object(agent.engine, "processes", side_effect=unreadable):
        ended = await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
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
