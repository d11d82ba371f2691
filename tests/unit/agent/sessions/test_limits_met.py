"""Limits that runs met, as reported after their end."""

import pytest

from agent.domain.sessions.session import Session
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason
from tiltyard.ends import Limit


async def ended(agent: Agent, internal_id: str) -> Session:
    """The session once it has ended."""
    life = agent.sessions.life(internal_id)
    await life.wait_for(lambda session: session.state.ended)
    return life.session


@pytest.mark.parametrize(
    ("exit_code", "detail"),
    [
        (134, "it could not have another process or thread (limits.pids)"),
        (0, ""),  # the game could do without
    ],
)
async def test_limit_of_processes_is_reported(agent: Agent, exit_code: int, detail: str) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.cgroups.refuse_process(session.process)
    agent.engine.end(session.container, exit_code)
    found = await ended(agent, session.internal_id)
    assert found.limits_met == (Limit.PIDS,)
    assert found.end_reason is EndReason.EXITED
    assert found.detail == detail


async def test_full_shared_memory_is_reported(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.clock.advance(0.5)  # it is followed
    agent.engine.meet_limits(session.container, Limit.SHM)
    agent.engine.end(session.container, 135)
    found = await ended(agent, session.internal_id)
    assert found.limits_met == (Limit.SHM,)
    assert found.detail == "its /dev/shm was full (limits.shm)"


async def test_all_limits_that_a_run_met_are_reported(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.clock.advance(0.5)  # it is followed
    agent.engine.meet_limits(session.container, Limit.SHM)
    agent.cgroups.refuse_process(session.process)
    agent.cgroups.kill_out_of_memory(session.process)
    agent.engine.end(session.container, 1)
    found = await ended(agent, session.internal_id)
    assert found.oom_killed
    assert found.limits_met == (Limit.PIDS, Limit.SHM)


async def test_limit_that_a_stopped_run_met_is_no_error(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec())
    agent.cgroups.refuse_process(session.process)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    found = await ended(agent, session.internal_id)
    assert found.limits_met == (Limit.PIDS,)
    assert found.detail == ""


async def test_limits_are_those_of_each_run(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.cgroups.refuse_process(session.process)
    await agent.fail(session, then=1)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    found = await ended(agent, session.internal_id)
    assert [run.limits_met for run in found.failed_runs] == [(Limit.PIDS,)]
    assert found.limits_met == ()


async def test_limit_of_processes_that_only_init_has_seen_is_reported(agent: Agent) -> None:
    """The control group may be gone before the agent can read it."""
    session = await agent.sessions.start(an_id(), a_spec())
    await agent.clock.advance(0.5)  # it is followed
    agent.engine.meet_limits(session.container, Limit.PIDS)
    agent.engine.end(session.container, 134)
    found = await ended(agent, session.internal_id)
    assert found.limits_met == (Limit.PIDS,)
