"""Offsets of live, ended and cut logs."""

from collections.abc import AsyncGenerator
from unittest import mock

import pytest

from agent.domain.errors import EngineError, LogGoneError
from agent.logs import reading as logs
from agent.logs.follower import MISSING
from agent.logs.offsets import LogExtent, from_offset, measured
from agent.logs.sealed import DROPPED
from agent.sessions.life import Life
from tests.support.agent.hosts import Agent
from tests.unit.agent.logs.test_logs import started

OUTPUT = b"one\ntwo\n\xff\xfe three\nand a rest"


async def read_from(agent: Agent, life: Life, offset: int) -> bytes:
    chunks = logs.read(agent.engine, agent.records, agent.clock, life, follow=False)
    return b"".join([chunk async for chunk in from_offset(chunks, offset)])


async def extent_of(agent: Agent, life: Life) -> LogExtent:
    return await measured(agent.engine, agent.records, life)


async def seal(agent: Agent, name: str, life: Life) -> None:
    agent.engine.end(name, 0)
    await life.wait_for(lambda now: now.log_sealed)


async def test_offsets_are_the_same_before_and_after_the_end(agent: Agent) -> None:
    name, life = await started(agent, OUTPUT)
    live = [await read_from(agent, life, offset) for offset in range(len(OUTPUT) + 1)]
    assert await extent_of(agent, life) == LogExtent(len(OUTPUT), is_whole=True)
    assert live == [OUTPUT[offset:] for offset in range(len(OUTPUT) + 1)]
    await seal(agent, name, life)
    assert await extent_of(agent, life) == LogExtent(len(OUTPUT), is_whole=True)
    assert [await read_from(agent, life, offset) for offset in range(len(OUTPUT) + 1)] == live


async def test_an_offset_is_at_most_the_end() -> None:
    assert LogExtent(7, is_whole=True).begin(7) == 7
    assert LogExtent(7, is_whole=True).begin(8) == 7
    assert LogExtent(7, is_whole=False).begin(3) is None


async def test_offsets_are_unknown_once_the_engine_may_have_dropped_lines(agent: Agent) -> None:
    _, life = await started(agent, b"1\n2\n3\n")
    with mock.patch("agent.logs.offsets.LOG_BYTES", 100):  # Each line counts as 34 bytes
        assert not (await extent_of(agent, life)).is_whole
    with mock.patch("agent.logs.offsets.LOG_BYTES", 102):
        assert (await extent_of(agent, life)).is_whole


async def test_offsets_of_a_cut_log_are_unknown(agent: Agent) -> None:
    name, life = await started(agent, OUTPUT)
    await seal(agent, name, life)
    agent.records.log_path(life.session.internal_id).write_bytes(DROPPED % 5 + OUTPUT)
    assert not (await extent_of(agent, life)).is_whole


async def test_a_log_that_is_gone_has_no_offsets(agent: Agent) -> None:
    name, life = await started(agent, OUTPUT)
    await seal(agent, name, life)
    agent.records.log_path(life.session.internal_id).unlink()
    with pytest.raises(LogGoneError):
        await extent_of(agent, life)


async def test_a_gap_ends_a_read_with_an_offset() -> None:
    """Behind it the bytes that were sent are not those that a reader would count."""
    for gap in (MISSING, b"\n" + MISSING):

        async def chunks(gap: bytes = gap) -> AsyncGenerator[bytes]:
            for chunk in (b"1\n", gap, b"9\n"):
                yield chunk

        found = from_offset(chunks(), 1)
        assert await anext(found) == b"\n"
        with pytest.raises(EngineError, match="dropped"):
            await anext(found)
