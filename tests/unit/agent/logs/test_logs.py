import asyncio
from unittest import mock

import pytest

from agent.domain.errors import EngineError, EngineUnavailableError, LogGoneError
from agent.logs import reading as logs
from agent.logs.follower import MISSING, READ_TRIES
from agent.sessions.life import Life
from tests.support.agent.fixtures import FullWhile
from tests.support.agent.hosts import Agent, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import State


async def started(agent: Agent, output: bytes = b"", *, restart: bool = False) -> tuple[str, Life]:
    """Start a session; return the name of its container, and its life."""
    session = await agent.sessions.start(an_id(), a_spec(restart=restart))
    name = f"tiltyard-{session.internal_id}"
    agent.engine.write_log(name, output)
    return name, agent.sessions.life(session.internal_id)


async def whole(agent: Agent, life: Life, *, follow: bool = False) -> bytes:
    chunks = logs.read(agent.engine, agent.records, agent.clock, life, follow=follow)
    return b"".join([chunk async for chunk in chunks])


async def test_chunks_are_bounded(agent: Agent) -> None:
    name, life = await started(agent)
    line = bytes(range(256)) * 4096
    agent.engine.write_log(name, line)
    read = logs.read(agent.engine, agent.records, agent.clock, life, follow=False)
    chunks = [chunk async for chunk in read]
    assert max(map(len, chunks)) <= logs.CHUNK_BYTES
    assert b"".join(chunks) == line


async def test_an_ended_session_is_read_from_the_sealed_file(agent: Agent) -> None:
    name, life = await started(agent, b"1\n")
    agent.engine.end(name, 0)
    await life.wait_for(lambda now: now.log_sealed)
    await agent.engine.remove(name)
    assert await whole(agent, life, follow=False) == b"1\n"
    assert await whole(agent, life, follow=True) == b"1\n"


async def test_log_of_removed_container_is_gone(agent: Agent) -> None:
    name, life = await started(agent)
    await agent.engine.remove(name)
    await life.wait_for(lambda now: now.container_removed)
    for follow in (False, True):
        with pytest.raises(LogGoneError):
            await whole(agent, life, follow=follow)


async def test_a_reader_of_a_starting_session_waits_for_it(agent: Agent) -> None:
    internal_id = an_id()
    starter = await agent.held_at("start.created", agent.sessions.start(internal_id, a_spec()))
    reader = asyncio.create_task(whole(agent, agent.sessions.life(internal_id)))
    await asyncio.sleep(0)
    assert not reader.done()
    agent.steps.release("start.created")
    await starter
    assert await reader == b""


SMALL_FILES = "agent.logs.follower.LIVE_BYTES", 1  # The engine may rotate files after every line


@mock.patch(*SMALL_FILES)
async def test_f32_a_follower_goes_on_where_it_was_when_the_engine_has_dropped_what_it_read(
    agent: Agent,
) -> None:
    name, life = await started(agent, b"1\n2\n3\n", restart=True)
    follower = asyncio.create_task(whole(agent, life, follow=True))
    await agent.clock.advance(logs.STEP_SECONDS)
    agent.engine.find(name).drop_log(2)
    agent.engine.end(name, 1)
    await life.wait_for(lambda now: now.state is State.RESTARTING)
    await agent.clock.advance(1)
    await life.wait_for(lambda now: now.restart_count == 1)
    agent.engine.write_log(name, b"4\n")
    agent.engine.end(name, 0)
    assert await follower == b"1\n2\n3\n4\n"


@mock.patch(*SMALL_FILES)
async def test_f32_what_a_follower_came_too_late_for_is_marked_by_one_line(agent: Agent) -> None:
    name, life = await started(agent, b"1\n")
    seen = bytearray()

    async def follow() -> None:
        async for chunk in logs.read(agent.engine, agent.records, agent.clock, life, follow=True):
            seen.extend(chunk)

    follower = asyncio.create_task(follow())
    await until(lambda: seen == b"1\n")
    agent.engine.write_log(name, b"2\n3\n" + b"4" * 20_000)
    agent.engine.find(name).drop_log(2)
    await agent.clock.advance(logs.STEP_SECONDS)
    await until(lambda: seen.endswith(b"4"))
    agent.engine.write_log(name, b"5\n6\n")
    agent.engine.find(name).drop_log(4)
    await agent.clock.advance(logs.STEP_SECONDS)
    agent.engine.end(name, 0)
    await follower
    assert seen == b"1\n" + MISSING + b"3\n" + b"4" * 20_000 + b"\n" + MISSING + b"6\n"


async def test_follower_survives_unavailable_engine(agent: Agent) -> None:
    name, life = await started(agent, b"1\n")
    follower = asyncio.create_task(whole(agent, life, follow=True))
    await agent.clock.advance(0)
    agent.engine.unavailable = True
    await agent.clock.advance(3 * logs.STEP_SECONDS)
    agent.engine.write_log(name, b"2\n")
    agent.engine.unavailable = False
    await agent.clock.advance(logs.STEP_SECONDS)
    agent.engine.end(name, 0)
    assert await follower == b"1\n2\n"


ROTATED = EngineError("logs", "unexpected number of bytes read from log message footer")
"""The error of 26.1.5 within a log while it rotates files."""


async def test_resumes_failed_log_after_the_last_complete_line(agent: Agent) -> None:
    name, life = await started(agent, b"1\n2\n")
    agent.engine.find(name).break_log(1, ROTATED)
    agent.engine.find(name).break_log(2, ROTATED)
    agent.engine.find(name).break_log(0, ROTATED, times=READ_TRIES - 2)
    once = asyncio.create_task(whole(agent, life))
    await agent.clock.advance((READ_TRIES + 1) * logs.STEP_SECONDS)
    assert await once == b"1\n2\n"

    agent.engine.find(name).break_log(1, ROTATED)
    follower = asyncio.create_task(whole(agent, life, follow=True))
    await agent.clock.advance(0)
    agent.engine.write_log(name, b"3\n" + b"4" * 20_000)
    await agent.clock.advance(0)
    agent.engine.find(name).break_log(3, ROTATED)
    agent.engine.write_log(name, b"5\n")
    await agent.clock.advance(logs.STEP_SECONDS)
    agent.engine.end(name, 0)
    await agent.clock.advance(logs.STEP_SECONDS)
    assert await follower == b"1\n2\n3\n" + b"4" * 20_000 + b"5\n"


@pytest.mark.parametrize("follow", [False, True])
async def test_log_that_keeps_failing_is_an_error(agent: Agent, *, follow: bool) -> None:
    name, life = await started(agent, b"1\n2\n")
    agent.engine.find(name).break_log(1, ROTATED, times=100)
    reader = asyncio.create_task(whole(agent, life, follow=follow))
    await agent.clock.advance(10 * READ_TRIES * logs.STEP_SECONDS)
    with pytest.raises(EngineError, match="log message footer"):
        await reader


async def test_engine_unavailable_at_first_is_an_error(agent: Agent) -> None:
    _, life = await started(agent)
    agent.engine.unavailable = True
    for follow in (False, True):
        with pytest.raises(EngineUnavailableError):
            await whole(agent, life, follow=follow)


async def test_f33_a_log_that_finds_no_room_is_sealed_when_there_is(
    agent: Agent, full_while: FullWhile
) -> None:
    name, life = await started(agent, b"1\n")
    room = asyncio.Event()
    full_while(lambda: not room.is_set())
    agent.engine.end(name, 0)
    await life.wait_for(lambda now: now.state.ended)
    await agent.clock.advance(60)
    assert not life.session.log_sealed
    assert await whole(agent, life) == b"1\n"
    assert not list(agent.records.directory(life.session.internal_id).glob(".log*"))
    room.set()
    await agent.clock.advance(60)
    await until_sealed(agent, life.session.internal_id)
    assert await whole(agent, life) == b"1\n"
