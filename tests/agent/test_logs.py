from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent import logs
from agent.errors import LogGone
from agent.session import EndReason, State
from tests.agent.hosts import Agent, an_agent
from tests.agent.samples import a_spec, an_id
from tests.fakes import FakeClock, FakeEngine


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    clock = FakeClock()
    async with an_agent(tmp_path, FakeEngine(clock), clock) as agent:
        yield agent


async def whole(agent: Agent, internal_id: str, *, follow: bool = False) -> bytes:
    life = agent.sessions.life(internal_id)
    chunks = logs.read(agent.engine, agent.records, life, follow=follow)
    return b"".join([chunk async for chunk in chunks])


async def test_what_was_written_so_far_is_read(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    assert await whole(agent, session.internal_id) == b""
    agent.engine.write_log(f"tiltyard-{session.internal_id}", b"one\n\xff\x00two\n")
    assert await whole(agent, session.internal_id) == b"one\n\xff\x00two\n"


async def test_chunks_are_bounded(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    line = bytes(range(256)) * 4096
    agent.engine.write_log(f"tiltyard-{session.internal_id}", line)
    life = agent.sessions.life(session.internal_id)
    chunks = [c async for c in logs.read(agent.engine, agent.records, life, follow=False)]
    assert max(map(len, chunks)) <= logs.CHUNK_BYTES
    assert b"".join(chunks) == line


async def test_a_follower_stays_until_the_session_has_ended(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name = f"tiltyard-{session.internal_id}"
    agent.engine.write_log(name, b"1\n")
    follower = asyncio.create_task(whole(agent, session.internal_id, follow=True))
    await asyncio.sleep(0)
    agent.engine.write_log(name, b"2\n")
    await asyncio.sleep(0)
    assert not follower.done()
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert await follower == b"1\n2\n"


async def test_a_follower_stays_through_restarts_without_gap_or_double(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    agent.engine.write_log(name, b"1\n")
    follower = asyncio.create_task(whole(agent, session.internal_id, follow=True))
    await asyncio.sleep(0)
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: now.restart_count == 1)
    agent.engine.write_log(name, b"2\n")
    agent.engine.end(name, 0)
    assert await follower == b"1\n2\n"


async def test_an_ended_session_is_read_from_the_sealed_file(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    name, life = f"tiltyard-{session.internal_id}", agent.sessions.life(session.internal_id)
    agent.engine.write_log(name, b"1\n")
    agent.engine.end(name, 0)
    await life.wait_for(lambda now: now.log_sealed)
    await agent.engine.remove(name)
    assert await whole(agent, session.internal_id) == b"1\n"
    assert await whole(agent, session.internal_id, follow=True) == b"1\n"


async def test_a_log_that_nobody_kept_is_gone(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    life = agent.sessions.life(session.internal_id)
    await agent.engine.remove(f"tiltyard-{session.internal_id}")
    await life.wait_for(lambda now: now.container_removed)
    for follow in (False, True):
        with pytest.raises(LogGone):
            await whole(agent, session.internal_id, follow=follow)


async def test_a_reader_of_a_starting_session_waits_for_it(agent: Agent) -> None:
    internal_id = an_id()
    agent.steps.hold("start.created")
    starter = asyncio.create_task(agent.sessions.start(internal_id, a_spec()))
    await agent.steps.reached("start.created")
    reader = asyncio.create_task(whole(agent, internal_id))
    await asyncio.sleep(0)
    assert not reader.done()
    agent.steps.release("start.created")
    await starter
    assert await reader == b""
