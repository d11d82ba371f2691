"""When the source of what a container sends is translated."""

import pytest

from agent.domain.errors import AgentError, HandOverFailedError
from agent.domain.kept.preparation import Discard
from agent.sessions import containers
from tests.support.agent.hosts import Agent, Host, until
from tests.support.agent.samples import a_spec, an_id
from tests.unit.agent.sessions.test_containers import a_template
from tiltyard.contract import EndReason, State


async def test_translation_begins_before_the_game_and_ends_with_it(agent: Agent) -> None:
    start = await agent.held_at("flows", agent.sessions.start(an_id(), a_spec()))
    [opened] = agent.sources.opened.values()
    assert not agent.engine.executed
    agent.steps.release("flows")
    session = await start
    assert opened == (session.address, session.ports)
    assert agent.sources.opened == {session.internal_id: opened}
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert agent.sources.opened == {}


async def test_failed_run_ends_it_and_a_restart_begins_it_again(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    await agent.fail(session)
    await agent.reached(session.internal_id, State.RESTARTING)
    assert agent.sources.opened == {}
    await agent.clock.advance(1)
    await agent.reached(session.internal_id, State.RUNNING)
    assert agent.sources.opened.keys() == {session.internal_id}


async def test_failed_start_leaves_none(agent: Agent) -> None:
    agent.engine.fail_next("hand_over", HandOverFailedError("hand over", "as scripted"))
    with pytest.raises(AgentError):
        await agent.sessions.start(an_id(), a_spec())
    assert agent.sources.opened == {}


async def test_restarted_agent_goes_on_with_running_sessions(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec())
    async with host() as agent:
        await until(lambda: agent.sources.opened.keys() == {session.internal_id})


async def test_prepared_container_has_one_until_it_is_removed(agent: Agent) -> None:
    made = await containers.prepare(agent.runtime, agent.reservations, a_template(agent))
    assert agent.sources.opened == {
        made.prepared_id: (made.container.address, made.template.ports)
    }
    await agent.prepared.discard(made, Discard.UNNEEDED)
    assert agent.sources.opened == {}
