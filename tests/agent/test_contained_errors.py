"""An unexpected error about one session ends only the work on that session."""

import asyncio
import contextlib
from typing import Any

import pytest

from agent.domain.containers import runs
from agent.domain.errors import AgentError
from agent.metrics.instruments import Metrics
from agent.reconciliation.recovery import Recovery
from agent.sessions import cleanup, readiness
from agent.sessions.life import Life
from agent.sessions.manager import SessionManager
from agent.sessions.reservations import Reservations
from agent.state import record
from agent.state.drain import DrainOrder
from agent.state.record import Records
from tests.agent.contained import SCRIPTED, a_spec_of, is_served, others_are_served, started
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import an_id
from tiltyard.contract import EndReason, State
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS

# -- the task of a session ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (Life, "finish_start"),
        (readiness, "watch"),
        (Metrics, "session_changed"),
        (record, "public_view"),
    ],
)
async def test_error_in_the_task_of_a_session(
    agent: Agent, fails: Any, caplog: pytest.LogCaptureFixture, owner: object, name: str
) -> None:
    """The task continues with the step that failed; a failed start is undone."""
    internal_id = an_id()
    failed = fails(owner, name, internal_id)
    starting_task = asyncio.ensure_future(
        agent.sessions.start(internal_id, a_spec_of("acme", ttl=3600.0))
    )
    await until(lambda: bool(failed))
    assert failed == [name]
    await others_are_served(agent)
    await agent.clock.advance(RETRY_LONGEST_SECONDS)
    assert SCRIPTED in caplog.text
    with contextlib.suppress(AgentError):  # of a start that was undone
        await starting_task
        await is_served(agent, internal_id)
    live = [each.described().labels for each in agent.engine.all if each.process is not None]
    assert live == []


async def test_error_while_a_session_is_discarded(agent: Agent, fails: Any) -> None:
    session = await agent.ended()
    failed = fails(cleanup, "remove_container", session.internal_id)
    with pytest.raises(RuntimeError):
        await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert failed
    await others_are_served(agent)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED, discard=True)
    assert agent.sessions.find(session.internal_id) is None


async def test_error_at_the_end_of_a_lifetime(agent: Agent, fails: Any, caplog: Any) -> None:
    """The sessions that are due at the same time end; this one ends soon after."""
    first = await started(agent, ttl=60.0)
    second = await started(agent, "other", ttl=60.0)
    fails(Metrics, "lifetime_over", first.internal_id)
    async with agent.timed():
        await agent.clock.advance(60.5)
        await agent.reached(second.internal_id)
        assert agent.now(first.internal_id).state is State.RUNNING
        assert SCRIPTED in caplog.text
        await agent.clock.advance(RETRY_LONGEST_SECONDS + 1)
        await agent.reached(first.internal_id)
    assert agent.now(first.internal_id).end_reason is EndReason.TTL


async def test_error_while_a_drain_is_published_to_a_game(agent: Agent, fails: Any) -> None:
    first = await started(agent)
    second = await started(agent, "other")
    failed = fails(Life, "publish", first.internal_id)
    await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=60.0))
    assert failed
    path = agent.records.public_dir(second) / "session.json"
    assert '"draining":true' in path.read_text()


async def test_error_at_the_end_of_a_drain(agent: Agent, fails: Any) -> None:
    first = await started(agent)
    second = await started(agent, "other")
    failed = fails(Life, "ask_stop", first.internal_id)
    await agent.sessions.drains.order(DrainOrder(1, draining=True, remaining=60.0))
    async with agent.timed():
        await agent.clock.advance(61)
        await agent.reached(second.internal_id)
        assert failed
        await agent.clock.advance(60)
        await agent.reached(first.internal_id)


# -- after a restart of the agent -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("owner", "name"),
    [
        (record, "newest"),
        (SessionManager, "remember"),
        (Reservations, "adopt"),
        (Recovery, "may_reap"),
        (SessionManager, "resume"),
        (runs, "as_found"),
    ],
)
async def test_error_about_a_session_from_an_earlier_run(
    host: Host, fails: Any, caplog: pytest.LogCaptureFixture, owner: object, name: str
) -> None:
    """The host is reconciled, and the session is served after all."""
    async with host() as agent:
        session = await started(agent)
        neighbour = await started(agent, "other")
        await agent.ready(session.internal_id)
        await agent.ready(neighbour.internal_id)
    fails(owner, name, session.internal_id)
    async with host() as agent:
        await others_are_served(agent)
        await is_served(agent, neighbour.internal_id)
        await agent.clock.advance(RETRY_LONGEST_SECONDS)
        await agent.pass_over()
        await agent.pass_over(after=120.0)
        await is_served(agent, session.internal_id)
    if name != "may_reap":  # which is asked about orphans only
        assert SCRIPTED in caplog.text


@pytest.mark.parametrize("name", ["create", "flush"])
async def test_error_about_a_session_that_is_restored_from_its_container(
    host: Host, fails: Any, name: str
) -> None:
    """Its container is not removed as an orphan; the next pass restores the session."""
    async with host() as agent:
        session = await started(agent)
        await agent.lose_record(session.internal_id)
    failed = fails(Records, name, session.internal_id, times=2)
    async with host() as agent:
        await others_are_served(agent)
        await agent.pass_over(after=120.0)
        assert len(failed) == 2
        await agent.pass_over(after=120.0)
        await is_served(agent, session.internal_id)


async def test_error_of_a_session_that_was_being_started_does_not_delay_the_host(
    host: Host, fails: Any
) -> None:
    """The record on disk is an older one: the game runs."""
    internal_id = an_id()
    async with host() as agent:
        path = agent.records.directory(internal_id) / "record.json"
        start = agent.sessions.start(internal_id, a_spec_of("acme"))
        begun = await agent.held_at("start.recorded", start)
        older = path.read_bytes()
        agent.steps.release("start.recorded")
        await begun
        await agent.ready(internal_id)
    path.write_bytes(older)
    failed = fails(Life, "save", internal_id)
    async with host() as agent:
        assert failed
        await others_are_served(agent)
        await agent.clock.advance(RETRY_LONGEST_SECONDS)
        await agent.sessions.life(internal_id).wait_started()
        await is_served(agent, internal_id)


async def test_mark_of_an_unknown_stop_does_not_keep_the_agent_from_starting(host: Host) -> None:
    async with host() as agent:
        session = await started(agent)
        await agent.ready(session.internal_id)
        (agent.records.directory(session.internal_id) / "stopped-oddly").touch()
    async with host() as agent:
        await is_served(agent, session.internal_id)
