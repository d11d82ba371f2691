"""Cleanup of ended sessions: sealed logs, removed containers, discards."""

import asyncio
from typing import Any

import pytest

from agent.domain import errors
from agent.logs import report
from agent.logs.reading import UNREADABLE
from agent.reconciliation.reconciler import REMOVED_AT_ONCE
from agent.rpc.wire import report_to_proto
from agent.sessions import cleanup
from agent.sessions.cleanup import SEAL_TRIES
from tests.faults.memory_host import assert_survived
from tests.support.agent.hosts import Agent, assert_nothing_is_left, until, until_sealed
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tests.support.hold import held_before
from tests.support.tasks import let_go
from tiltyard.contract import EndReason
from tiltyard.runtime.back_off import RETRY_FIRST_SECONDS


async def test_unreadable_rest_of_a_log_is_lost(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(session.container, b"one\ntwo\nthree\n")
    broken = errors.EngineError("logs", "invalid header")
    agent.engine.find(session.container).break_log(2, broken, times=SEAL_TRIES + 1)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(RETRY_FIRST_SECONDS)
    assert not agent.now(session.internal_id).log_sealed
    await agent.clock.advance(RETRY_FIRST_SECONDS * 2**SEAL_TRIES)
    sealed = agent.records.log_path(session.internal_id).read_bytes()
    assert sealed == b"one\ntwo\n" + UNREADABLE % str(broken).encode()
    assert agent.recorded(session.internal_id).log_damaged


async def test_log_that_cannot_be_opened_is_given_up(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    unreadable = errors.EngineError("logs", "failed to get its reader")
    agent.engine.fail_next("logs", unreadable, times=SEAL_TRIES + 1)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(RETRY_FIRST_SECONDS * 2**SEAL_TRIES)
    await until_idle()
    assert agent.now(session.internal_id).log_sealed
    sealed = agent.records.log_path(session.internal_id).read_bytes()
    assert sealed == UNREADABLE % b"cannot logs: failed to get its reader"
    assert agent.recorded(session.internal_id).log_damaged


@pytest.mark.parametrize(
    "lost",
    [
        range(3),
        range(1, 3),
        range(2, 4),
        range(4),
    ],
)
async def test_silent_gap_in_a_log_is_reported(agent: Agent, lost: range) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    lines = [b"one\n", b"two\n", b"three\n", b"four\n"]
    agent.engine.write_log(session.container, b"".join(lines))
    agent.engine.find(session.container).unreadable = lost
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(RETRY_FIRST_SECONDS * 2 ** (SEAL_TRIES + 1))
    sealed = agent.records.log_path(session.internal_id).read_bytes()
    readable = b"".join(line for n, line in enumerate(lines) if n not in lost)
    assert sealed.startswith(readable + UNREADABLE.partition(b"%")[0])
    life = agent.sessions.life(session.internal_id)
    found, tail = await report.read(agent.records, agent.clock, life)
    assert report_to_proto(found, tail).log_damaged


async def test_log_whose_pieces_take_too_long_to_count_is_sealed(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = agent.engine.logs

    def logs(container: str, *, tail: int | None = None, **options: Any) -> Any:
        if tail is not None and tail > 1:
            raise errors.EngineTimeoutError("logs")
        return whole(container, tail=tail, **options)

    monkeypatch.setattr(agent.engine, "logs", logs)
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(session.container, b"one\ntwo\n")
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(RETRY_FIRST_SECONDS)
    assert agent.records.log_path(session.internal_id).read_bytes() == b"one\ntwo\n"
    assert not agent.recorded(session.internal_id).log_damaged


async def test_log_is_sealed_whole_after_one_read_error(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.engine.write_log(session.container, b"one\ntwo\n")
    agent.engine.find(session.container).break_log(
        1, errors.EngineError("logs", "unexpected bytes")
    )
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await agent.clock.advance(RETRY_FIRST_SECONDS)
    await until_sealed(agent, session.internal_id)
    assert agent.records.log_path(session.internal_id).read_bytes() == b"one\ntwo\n"
    assert not agent.recorded(session.internal_id).log_damaged


async def test_removals_leave_the_engine_free_for_starts(agent: Agent) -> None:
    for _ in range(2 * REMOVED_AT_ONCE + 1):
        await agent.ended()
    await agent.clock.advance(4 * 3600)
    agent.engine.hold("remove")
    await agent.reconciler.pass_once()
    await until_idle()
    assert agent.engine.count("remove") == REMOVED_AT_ONCE
    agent.engine.release("remove")
    await until_idle()
    assert await agent.engine.list(agent.runtime.agent_id) == []
    await assert_survived(agent)


async def test_discard_waits_for_the_log(agent: Agent, caplog: pytest.LogCaptureFixture) -> None:
    internal_id = (await agent.ended()).internal_id
    life = agent.sessions.life(internal_id)
    await cleanup.remove_container(agent.runtime, life)
    slow = held_before(agent.records, "drop_log")
    drop = asyncio.create_task(cleanup.drop_log(agent.runtime, life))
    await until_idle()
    stop = agent.sessions.stop(internal_id, EndReason.STOPPED, discard=True)
    discard = asyncio.create_task(stop)
    await until_idle()
    assert agent.directories() == [internal_id]
    slow.set()
    await asyncio.gather(drop, discard)
    with agent.runtime.feed.subscribe() as subscription:
        await cleanup.drop_log(agent.runtime, life)
        assert (await subscription.take(0)).sessions == ()
    await assert_nothing_is_left(agent)
    assert "cannot write the record" not in caplog.text


async def test_discard_completes_after_the_caller_disconnects(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    stop = agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    await let_go(await agent.engine.held_in("remove", stop))
    agent.engine.release("remove")
    await until(lambda: agent.directories() == [])
    await assert_nothing_is_left(agent)
    with pytest.raises(errors.SessionNotFoundError):
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)


async def test_failed_discard_of_a_disconnected_caller_is_logged(
    agent: Agent, caplog: pytest.LogCaptureFixture
) -> None:
    session = await agent.ended()
    stop = agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    await let_go(await agent.engine.held_in("remove", stop))
    agent.engine.fail_next("remove", errors.EngineTimeoutError("remove"))
    agent.engine.release("remove")
    await until_idle()
    assert "cannot be discarded yet" in caplog.text
    assert not agent.now(session.internal_id).container_removed
