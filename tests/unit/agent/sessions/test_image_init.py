"""Sessions of images with an init of their own, which is process 1 of their containers."""

import asyncio
from dataclasses import replace
from typing import Any

from agent.domain.containers.engine import Start
from agent.domain.sessions.session import Session
from agent.sessions.claims import LISTEN_SECONDS
from tests.support.agent.hosts import Agent, Host, until, until_sealed
from tests.support.agent.keeping import PREPARED, prepared_for
from tests.support.agent.pools import a_claim, a_pool, kept_full, ordered, ready
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.fake_processes import FakeProcess
from tiltyard.contract import EndReason, State
from tiltyard.ends import StopResult


def hand_overs(agent: Agent, session: Session) -> list[Start]:
    """What was handed to the first process of a session's container, run by run."""
    [container] = [each for each in agent.engine.all if each.id == session.container]
    return container.starts


async def started(agent: Agent, **changes: Any) -> tuple[Session, FakeProcess, FakeProcess]:
    """A session, the init of its image, and a game that this supervises."""
    session = await agent.sessions.start(an_id(), a_spec(image_init=True, **changes))
    init = agent.engine.program_of(session.container)
    game = agent.engine.add_process(session.container, "game", parent=init.member.process)
    return session, init, game


async def test_init_of_the_image_takes_the_place_of_process_1(agent: Agent) -> None:
    session, init, _ = await started(agent)
    assert init.member.process == session.process
    [start] = hand_overs(agent, session)
    assert start.in_place


async def test_restart_hands_over_in_the_same_way(agent: Agent) -> None:
    session, _, _ = await started(agent, restart=True)
    agent.engine.end(session.container, 4)
    await agent.clock.advance(2)
    await until(lambda: agent.now(session.internal_id).restart_count == 1)
    await until(lambda: len(hand_overs(agent, session)) == 2)
    assert all(start.in_place for start in hand_overs(agent, session))
    assert agent.now(session.internal_id).failed_runs[0].exit_code == 4


async def test_only_the_init_of_the_image_gets_the_signal_of_a_stop(agent: Agent) -> None:
    agent.engine.stop_signals[IMAGE] = "SIGCONT"
    session, init, game = await started(agent)
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(9)
    assert init.got == ["SIGCONT"]
    assert game.got == []
    agent.engine.end(session.container, 0)
    ended = await stopper
    assert ended.exit_code == 0
    assert ended.stop == StopResult("SIGCONT", delivered=True)


async def test_init_of_the_image_is_killed_after_the_grace_period(agent: Agent) -> None:
    session, init, _ = await started(agent)
    init.ends_by = frozenset({"SIGKILL"})
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(11)
    ended = await stopper
    assert ended.exit_code == 137
    assert ended.stop is not None
    assert ended.stop.delivered
    assert ended.stop.forced
    assert set(ended.stop.killed) == {"own-init", "game"}


async def test_signal_that_process_1_does_not_handle_is_not_delivered(agent: Agent) -> None:
    session, init, _ = await started(agent)
    init.member = replace(init.member, caught=0)
    init.ends_by = frozenset({"SIGKILL"})
    stopper = asyncio.create_task(agent.sessions.stop(session.internal_id, EndReason.STOPPED))
    await agent.clock.advance(11)
    result = (await stopper).stop
    assert result is not None
    assert result.delivered is False


async def a_standby(agent: Agent) -> tuple[Session, FakeProcess]:
    async with kept_full(agent):
        await ordered(agent, a_pool(1, claim_signal="SIGUSR1", image_init=True))
    [standby] = ready(agent)
    return standby, agent.engine.program_of(standby.container)


async def test_claim_signal_goes_to_the_game_and_not_to_the_init_of_its_image(
    agent: Agent,
) -> None:
    standby, init = await a_standby(agent)
    game = agent.engine.add_process(standby.container, "game", parent=init.member.process)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await until_idle()
    assert game.got == ["SIGUSR1"]
    assert init.got == []


async def test_init_that_handles_a_claim_signal_alone_does_not_get_it(agent: Agent) -> None:
    standby, init = await a_standby(agent)
    await agent.warm_pools.claim(standby.internal_id, a_claim())
    await agent.clock.advance(LISTEN_SECONDS + 1)
    assert init.got == []
    recorded = agent.recorded(standby.internal_id)
    assert recorded.claim is not None
    assert recorded.claim.signal_missed == "no process has a handler for it"


async def test_restarted_agent_finds_it_running_and_hands_nothing_over(host: Host) -> None:
    async with host() as agent:
        before, _, _ = await started(agent)
        await agent.ready(before.internal_id)
    async with host() as agent:
        now = agent.now(before.internal_id)
        assert now.state is State.RUNNING
        assert now.process == before.process
        assert len(hand_overs(agent, before)) == 1


async def test_restarted_agent_stops_it_by_its_init(host: Host) -> None:
    async with host() as agent:
        before, init, game = await started(agent)
    async with host() as agent:
        await agent.sessions.stop(before.internal_id, EndReason.STOPPED)
        now = (await until_sealed(agent, before.internal_id)).session
        assert now.exit_code == 143
        assert init.got == ["SIGTERM"]
        assert game.got == []


async def test_it_takes_a_container_that_was_prepared_for_others(
    host: Host,
) -> None:
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, a_spec())
        session, init, _ = await started(agent)
        assert session.prepared == prepared.prepared_id
        assert init.member.process == prepared.container.process
