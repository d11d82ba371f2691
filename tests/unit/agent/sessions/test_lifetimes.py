"""When sessions end by their lifetimes, and what their ends wait for."""

import asyncio

import pytest

from agent.domain.errors import NoFreePortError
from agent.domain.session import Session
from agent.sessions.ending import CONFIRM_SECONDS
from agent.state.record import Records
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, State

HOUR = 3600


async def test_a_short_lifetime_is_kept_that_began_while_the_next_one_was_far_away(
    agent: Agent,
) -> None:
    async with agent.timed():
        await agent.sessions.start(an_id(), a_spec(ttl=10.0 * HOUR))
        await agent.clock.advance(60)  # the keeper sleeps
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        await agent.clock.advance(61)
        assert agent.now(session.internal_id).stop_reason is EndReason.TTL


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
async def test_an_end_is_confirmed_for_as_long_whatever_the_wall_clock_does(
    agent: Agent, jump: int
) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    life = agent.sessions.life(session.internal_id)
    agent.engine.lose_process(session.container)  # the engine calls it running
    await agent.clock.advance(CONFIRM_SECONDS / 2)
    agent.clock.jump(jump)
    await agent.clock.advance(CONFIRM_SECONDS / 2 - 2)
    assert not life.session.state.ended
    await agent.clock.advance(4)
    assert life.session.state is State.DEAD


async def test_a_port_is_taken_again_only_after_the_end_is_recorded(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An agent killed in between would give the port to two sessions."""
    arrived, recorded, save = asyncio.Event(), asyncio.Event(), Records.save

    async def held(records: Records, session: Session) -> None:
        if session.state.ended:
            arrived.set()
            await recorded.wait()
        await save(records, session)

    monkeypatch.setattr(Records, "save", held)
    async with host(ports=(20000, 20000)) as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        host.engine.end(session.container, 0)
        await arrived.wait()
        with pytest.raises(NoFreePortError):
            await agent.sessions.start(an_id(), a_spec())
        recorded.set()
        await agent.sessions.life(session.internal_id).wait_for(lambda now: now.log_sealed)
        await agent.sessions.start(an_id(), a_spec())
