"""Sessions of an earlier boot, whose lifetimes go by a wall clock that may be wrong or be set."""

import contextlib
from collections.abc import AsyncIterator

import pytest

from agent.domain.deadlines import HELD_SECONDS
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, Host
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason

LIFETIME, DAY = 120, 86_400
UP = HELD_SECONDS - 30
"""Seconds for which the machine has run when the agent is back: time passes second by second."""


@pytest.fixture(params=[EndReason.TTL, EndReason.DRAIN], ids=str)
async def left(request: pytest.FixtureRequest, host: Host) -> tuple[str, EndReason]:
    """A session that has LIFETIME left when its machine restarts, and what is to end it then."""
    reason: EndReason = request.param
    ttl = LIFETIME if reason is EndReason.TTL else None
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True, ttl=ttl))
        if reason is EndReason.DRAIN:
            await agent.sessions.set_drain(DrainOrder(1, draining=True, remaining=LIFETIME))
    host.engine.end(f"tiltyard-{session.internal_id}", 137)
    host.clock.reboot(UP)
    return session.internal_id, reason


@contextlib.asynccontextmanager
async def _back_while_held(host: Host) -> AsyncIterator[Agent]:
    """Have a clock that is a day ahead and not synchronised, a second before that counts."""
    host.clock.synchronised = False
    host.clock.jump(DAY)
    async with host() as agent, agent.timed():
        await host.clock.advance(HELD_SECONDS - UP - 1)
        yield agent


async def test_a_lifetime_waits_until_the_clock_is_synchronised(
    host: Host, left: tuple[str, EndReason]
) -> None:
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


async def test_a_lifetime_waits_ten_minutes_at_most(
    host: Host, left: tuple[str, EndReason]
) -> None:
    internal_id, reason = left
    async with _back_while_held(host) as agent:
        life = agent.sessions.life(internal_id)
        assert life.session.stop_reason is None
        await host.clock.advance(2)
        assert life.session.stop_reason is reason


async def test_a_lifetime_follows_the_clock_when_it_is_set(
    host: Host, left: tuple[str, EndReason]
) -> None:
    internal_id, reason = left
    host.clock.jump(-DAY)
    async with host() as agent, agent.timed():
        life = agent.sessions.life(internal_id)
        await host.clock.advance(2 * LIFETIME)
        assert life.session.stop_reason is None
        host.clock.jump(DAY)
        await host.clock.advance(1)
        assert life.session.stop_reason is reason


async def test_a_lifetime_of_this_boot_does_not_wait(host: Host) -> None:
    host.clock.reboot()
    host.clock.synchronised = False
    async with host() as agent, agent.timed():
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        host.clock.jump(-DAY)
        await host.clock.advance(60)
        life = agent.sessions.life(session.internal_id)
        assert life.session.stop_reason is EndReason.TTL
