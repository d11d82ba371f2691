"""Starts whose prepared container cannot be used: they go on without it."""

from collections.abc import AsyncIterator

import pytest

from agent.domain.containers.engine import InitState
from agent.domain.errors import EngineUnavailableError, HandOverFailedError, SessionStoppedError
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left
from tests.support.agent.keeping import PREPARED, prepared_for
from tests.support.agent.samples import a_spec, an_id
from tests.support.fake_clock import until_idle
from tiltyard.contract import EndReason, NetworkMode, PortRequest, Protocol, State

UDP = PortRequest(7777, Protocol.UDP)


@pytest.fixture
async def agent(host: Host) -> AsyncIterator[Agent]:
    async with host(prepared=PREPARED) as agent:
        yield agent


async def test_start_goes_on_with_a_container_of_its_own_if_the_prepared_one_has_ended(
    agent: Agent,
) -> None:
    prepared = await prepared_for(agent, a_spec())
    agent.engine.end(prepared.container.container, 137, reports=False)
    session = await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    assert session.prepared == ""
    assert session.container != prepared.container.container
    assert session.ports != prepared.template.ports
    assert agent.engine.executed == {session.container: 1}
    assert agent.recorded(session.internal_id) == session.with_changes(sequence=0)
    await until_idle()
    assert [each.id for each in agent.engine.all] == [session.container]
    assert await agent.records.prepared_ids() == []
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    assert agent.nothing_is_held()


async def test_no_container_is_made_for_the_session_before_the_prepared_one_is_gone(
    agent: Agent,
) -> None:
    """It may have executed the program: nothing runs twice, also if the engine forgot it."""
    prepared = await prepared_for(agent, a_spec())
    agent.engine.forget_start(prepared.container.container)
    failed = HandOverFailedError("hand over", "its init does not answer")
    agent.engine.fail_next("hand_over", failed)
    internal_id = an_id()
    starter = await agent.engine.held_in("remove", agent.sessions.start(internal_id, a_spec()))
    await until_idle()
    assert [each.id for each in agent.engine.all] == [prepared.container.container]
    assert agent.engine.living == set()
    agent.steps.hold("start.recorded")
    agent.engine.release("remove")
    await agent.steps.reached("start.recorded")
    assert agent.recorded(internal_id).state is State.CREATED
    assert agent.recorded(internal_id).prepared == ""
    agent.steps.release("start.recorded")
    session = await starter
    assert agent.engine.executed == {session.container: 1}


async def test_start_fails_if_the_prepared_container_cannot_be_removed(agent: Agent) -> None:
    prepared = await prepared_for(agent, a_spec())
    agent.engine.fail_next("hand_over", HandOverFailedError("hand over", "it does not answer"))
    agent.engine.fail_next("remove", EngineUnavailableError("gone"))
    with pytest.raises(EngineUnavailableError):
        await agent.sessions.start(an_id(), a_spec(ttl=60.0))
    assert not agent.engine.executed
    assert prepared.container.container not in [each.id for each in agent.engine.all]
    await assert_nothing_is_left(agent)


async def test_stop_during_the_second_try_leaves_nothing(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    agent.engine.fail_next("hand_over", HandOverFailedError("hand over", "it does not answer"))
    internal_id = an_id()
    starter = await agent.held_at("start.created", agent.sessions.start(internal_id, a_spec()))
    agent.sessions.life(internal_id).ask_stop(EndReason.STOPPED)
    agent.steps.release("start.created")
    with pytest.raises(SessionStoppedError):
        await starter
    await until_idle()
    assert agent.engine.all == []
    await assert_nothing_is_left(agent)


async def test_port_of_the_hosts_network_that_another_process_has_begun_to_use(
    host: Host,
) -> None:
    in_use: set[tuple[Protocol, int]] = set()
    spec = a_spec(network_mode=NetworkMode.HOST, ports=(UDP,))
    async with host(prepared=PREPARED, is_free=lambda *port: port not in in_use) as agent:
        prepared = await prepared_for(agent, spec)
        taken = prepared.template.ports[0].host
        in_use.add((Protocol.UDP, taken))
        session = await agent.sessions.start(an_id(), spec)
        assert session.ports[0].host != taken
        assert agent.engine.executed == {session.container: 1}


async def test_init_of_a_prepared_container_waits_until_it_is_taken(agent: Agent) -> None:
    await prepared_for(agent, a_spec())
    await agent.pass_over(after=100)
    [container] = agent.engine.all
    assert container.init is InitState.WAITING
