"""Limits of running containers that other programs have changed."""

from dataclasses import replace

import pytest

from agent.domain.errors import AgentError, EngineError
from agent.domain.host.kernel_limits import ContainerLimits
from agent.domain.sessions.session import Session
from agent.limits.kernel_limits import LOOK_SECONDS, LimitWatch
from tests.support.agent.hosts import Agent
from tests.support.agent.samples import a_spec, an_id
from tests.support.tasks import running
from tiltyard.contract import EndReason

SPEC = a_spec(pids=99)


async def played(agent: Agent) -> Session:
    return await agent.sessions.start(an_id(), SPEC)


def change(agent: Agent, session: Session) -> None:
    """Let another program lift a limit of a session."""
    assert session.process is not None
    agent.engine.changed[session.process] = ("swap",)


async def test_changed_limits_are_set_again(agent: Agent) -> None:
    async with running(LimitWatch(agent.runtime, agent.sessions).run()):
        session = await played(agent)
        other = await played(agent)
        await agent.clock.advance(LOOK_SECONDS)
        assert agent.engine.count("update") == 0
        change(agent, session)
        await agent.clock.advance(LOOK_SECONDS)
    assert agent.engine.limits_set == [ContainerLimits(SPEC.reservation, SPEC.limits, 99)]
    assert ("update", session.container) in agent.engine.calls
    assert ("update", other.container) not in agent.engine.calls


async def test_default_limit_of_processes_is_the_hosts(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), replace(SPEC, pids=0))
    change(agent, session)
    await LimitWatch(agent.runtime, agent.sessions).look()
    [wanted] = agent.engine.limits_set
    assert wanted.pids == agent.runtime.settings.session_pids


async def test_limits_of_an_ended_session_are_left_alone(agent: Agent) -> None:
    session = await played(agent)
    change(agent, session)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    await LimitWatch(agent.runtime, agent.sessions).look()
    assert agent.engine.count("update") == 0


async def test_limits_that_stay_changed_are_set_ever_more_rarely(agent: Agent) -> None:
    """A kernel may refuse a limit, as of memory that is in use."""
    limits = LimitWatch(agent.runtime, agent.sessions)
    session = await played(agent)
    sets = []
    for _ in range(60):
        change(agent, session)
        before = agent.engine.count("update")
        await limits.look()
        sets.append(agent.engine.count("update") - before)
        await agent.clock.advance(1)
    assert sets[0] == 1
    assert 3 <= sum(sets) <= 8


@pytest.mark.parametrize(
    "error",
    [
        EngineError("update", "device or resource busy"),
        AgentError(),
    ],
)
async def test_refused_limit_is_set_at_a_later_look(agent: Agent, error: AgentError) -> None:
    async with running(LimitWatch(agent.runtime, agent.sessions).run()):
        session = await played(agent)
        change(agent, session)
        agent.engine.fail_next("update", error)
        await agent.clock.advance(LOOK_SECONDS)
        assert agent.engine.limits_set == []
        await agent.clock.advance(2 * LOOK_SECONDS)
        assert len(agent.engine.limits_set) == 1
        assert agent.engine.changed == {}


async def test_error_of_one_session_leaves_the_others_alone(agent: Agent) -> None:
    first = await played(agent)
    second = await played(agent)
    change(agent, first)
    change(agent, second)
    agent.engine.fail_next("update", AgentError())
    await LimitWatch(agent.runtime, agent.sessions).look()
    assert len(agent.engine.limits_set) == 1
