"""Sessions of an earlier boot, whose lifetimes go by a wall clock that may be wrong or be set."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent.domain.deadlines import HELD_SECONDS
from agent.state.drain import DrainOrder
from tests.support.agent.hosts import Agent, an_agent
from tests.support.agent.samples import a_spec, an_id
from tests.support.fakes import FakeClock, FakeEngine
from tiltyard.contract import EndReason

LIFETIME, DAY = 120, 86_400
UP = HELD_SECONDS - 30
"""Seconds for which the machine has run when the agent is back: time passes second by second."""


@pytest.fixture(params=[EndReason.TTL, EndReason.DRAIN], ids=str)
async def left(
    request: pytest.FixtureRequest, tmp_path: Path, engine: FakeEngine, clock: FakeClock
) -> tuple[str, EndReason]:
    """A session that has LIFETIME left when its machine restarts, and what is to end it then."""
    reason: EndReason = request.param
    ttl = LIFETIME if reason is EndReason.TTL else None
    async with an_agent(tmp_path, engine, clock) as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True, ttl=ttl))
        if reason is EndReason.DRAIN:
            await agent.sessions.set_drain(DrainOrder(1, draining=True, remaining=LIFETIME))
    engine.end(f"tiltyard-{session.internal_id}", 137)
    clock.reboot(UP)
    return session.internal_id, reason


@contextlib.asynccontextmanager
async def _back(folder: Path, engine: FakeEngine, clock: FakeClock) -> AsyncIterator[Agent]:
    async with an_agent(folder, engine, clock) as agent:
        keeper = asyncio.create_task(agent.sessions.keep_deadlines(), name="deadlines")
        try:
            yield agent
        finally:
            keeper.cancel()
            await asyncio.gather(keeper, return_exceptions=True)


@contextlib.asynccontextmanager
async def _back_while_held(
    folder: Path, engine: FakeEngine, clock: FakeClock
) -> AsyncIterator[Agent]:
    """Have a clock that is a day ahead and not synchronised, a second before that counts."""
    clock.synchronised = False
    clock.jump(DAY)
    async with _back(folder, engine, clock) as agent:
        await clock.advance(HELD_SECONDS - UP - 1)
        yield agent


async def test_a_lifetime_waits_until_the_clock_is_synchronised(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, left: tuple[str, EndReason]
) -> None:
    internal_id, reason = left
    async with _back_while_held(tmp_path, engine, clock) as agent:
        life = agent.sessions.life(internal_id)
        assert life.session.stop_reason is None
        [warning] = agent.runtime.deadlines.warnings
        assert warning.startswith("1 lifetimes")
        clock.jump(-DAY)
        clock.synchronised = True
        await clock.advance(LIFETIME - (HELD_SECONDS - UP))
        assert life.session.stop_reason is None
        assert agent.runtime.deadlines.warnings == ()
        await clock.advance(2)
        assert life.session.stop_reason is reason


async def test_a_lifetime_waits_ten_minutes_at_most(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, left: tuple[str, EndReason]
) -> None:
    internal_id, reason = left
    async with _back_while_held(tmp_path, engine, clock) as agent:
        life = agent.sessions.life(internal_id)
        assert life.session.stop_reason is None
        await clock.advance(2)
        assert life.session.stop_reason is reason


async def test_a_lifetime_follows_the_clock_when_it_is_set(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock, left: tuple[str, EndReason]
) -> None:
    internal_id, reason = left
    clock.jump(-DAY)
    async with _back(tmp_path, engine, clock) as agent:
        life = agent.sessions.life(internal_id)
        await clock.advance(2 * LIFETIME)
        assert life.session.stop_reason is None
        clock.jump(DAY)
        await clock.advance(1)
        assert life.session.stop_reason is reason


async def test_a_lifetime_of_this_boot_does_not_wait(
    tmp_path: Path, engine: FakeEngine, clock: FakeClock
) -> None:
    clock.reboot()
    clock.synchronised = False
    async with _back(tmp_path, engine, clock) as agent:
        session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
        clock.jump(-DAY)
        await clock.advance(60)
        life = agent.sessions.life(session.internal_id)
        assert life.session.stop_reason is EndReason.TTL
