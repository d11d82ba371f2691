"""TTLs of sessions regardless of the wall clock, and the order of their ends."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from agent.domain.errors import NoFreePortError
from agent.sessions.ending import CONFIRM_SECONDS
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, Host, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.hold import held_before
from tiltyard.contract import EndReason, State
from tiltyard.runtime.clock import HELD_SECONDS

HOUR = 3600


async def test_short_ttl_set_while_waiting_for_a_long_one_is_kept(agent: Agent) -> None:
    async with agent.timed():
        await agent.sessions.start(an_id(), a_spec(ttl=10.0 * HOUR))
        await agent.clock.advance(60)  # the keeper sleeps
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        await agent.clock.advance(61)
        assert agent.now(session.internal_id).stop_reason is EndReason.TTL


@pytest.mark.parametrize("jump", [-HOUR, HOUR])
async def test_confirmation_of_an_end_ignores_the_wall_clock(agent: Agent, jump: int) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    life = agent.sessions.life(session.internal_id)
    agent.engine.lose_process(session.container)  # the engine reports it as running
    await agent.clock.advance(CONFIRM_SECONDS / 2)
    agent.clock.jump(jump)
    await agent.clock.advance(CONFIRM_SECONDS / 2 - 2)
    assert not life.session.state.ended
    await agent.clock.advance(4)
    assert life.session.state is State.DEAD


async def test_port_is_released_after_the_end_is_recorded(host: Host) -> None:
    """Otherwise an agent killed in between would give the port to two sessions."""
    async with host(ports=(20000, 20000)) as agent:
        gate = held_before(agent.records, "save", lambda session: session.state.ended)
        session = await agent.sessions.start(an_id(), a_spec())
        host.engine.end(session.container, 0)
        await gate.reached.wait()
        with pytest.raises(NoFreePortError):
            await agent.sessions.start(an_id(), a_spec())
        gate.set()
        await until_sealed(agent, session.internal_id)
        await agent.sessions.start(an_id(), a_spec())


LIFETIME = 120
DAY = 86_400
UP = HELD_SECONDS - 30  # Seconds since boot when the agent is back


@pytest.fixture(params=[EndReason.TTL, EndReason.DRAIN], ids=str)
async def left(request: pytest.FixtureRequest, host: Host) -> tuple[str, EndReason]:
    """A session with LIFETIME left at a reboot, and its expected end reason."""
    reason: EndReason = request.param
    ttl = LIFETIME if reason is EndReason.TTL else None
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True, ttl=ttl))
        if reason is EndReason.DRAIN:
            await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=LIFETIME))
    host.engine.end(session.container, 137)
    host.clock.reboot(UP)
    return session.internal_id, reason


@contextlib.asynccontextmanager
async def _back_while_held(host: Host) -> AsyncIterator[Agent]:
    """An agent with an unsynchronised clock a day ahead, a second before that counts."""
    host.clock.synchronised = False
    host.clock.jump(DAY)
    async with host() as agent, agent.timed():
        await host.clock.advance(HELD_SECONDS - UP - 1)
        yield agent


async def test_ttl_waits_for_a_synchronised_clock(host: Host, left: tuple[str, EndReason]) -> None:
    internal_id, reason = left
    async with _back_while_held(host) as agent:
        life = agent.sessions.life(internal_id)
        assert life.session.stop_reason is None
        [warning] = agent.runtime.deadlines.warnings
        assert warning.startswith("1 lifetimes")
        host.clock.jump(-DAY)
        host.clock.synchronised = True
        await host.clock.advance(LIFETIME - (HELD_SECONDS - UP))
        assert life.session.stop_reason is None
        assert agent.runtime.deadlines.warnings == ()
        await host.clock.advance(2)
        assert life.session.stop_reason is reason


async def test_ttl_waits_ten_minutes_at_most(host: Host, left: tuple[str, EndReason]) -> None:
    internal_id, reason = left
    async with _back_while_held(host) as agent:
        assert agent.now(internal_id).stop_reason is None
        await host.clock.advance(2)
        assert agent.now(internal_id).stop_reason is reason


async def test_ttl_follows_a_clock_that_is_set(host: Host, left: tuple[str, EndReason]) -> None:
    internal_id, reason = left
    host.clock.jump(-DAY)
    async with host() as agent, agent.timed():
        await host.clock.advance(2 * LIFETIME)
        assert agent.now(internal_id).stop_reason is None
        host.clock.jump(DAY)
        await host.clock.advance(1)
        assert agent.now(internal_id).stop_reason is reason


async def test_ttl_of_this_boot_does_not_wait(host: Host) -> None:
    host.clock.reboot()
    host.clock.synchronised = False
    async with host() as agent, agent.timed():
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        host.clock.jump(-DAY)
        await host.clock.advance(60)
        assert agent.now(session.internal_id).stop_reason is EndReason.TTL
