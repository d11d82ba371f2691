"""Sessions whose ports are neighbours, or have the host's number in their own network."""

from dataclasses import replace

import pytest

from agent.domain.errors import NoFreePortError, PortTakenError
from agent.domain.kept.preparation import Discard
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left
from tests.support.agent.keeping import PREPARED, keeping_on, kept_ids, prepared_for
from tests.support.agent.pools import a_pool, kept_full, standbys
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, PortRequest, Protocol, SessionSpec, State

UDP = PortRequest(7777, Protocol.UDP)
QUERY = PortRequest(7778, Protocol.UDP)
PAIR = a_spec(ports=(UDP, QUERY), contiguous=True)
SAME = a_spec(ports=(replace(UDP, same=True),))


def alone(port: int) -> SessionSpec:
    return a_spec(ports=(replace(UDP, pinned=port),))


async def hosts_of(agent: Agent, spec: SessionSpec) -> list[int]:
    session = await agent.sessions.start(an_id(), spec)
    return [port.host for port in session.ports]


async def test_ports_of_a_contiguous_session_are_neighbours(agent: Agent) -> None:
    await agent.sessions.start(an_id(), alone(20001))
    assert await hosts_of(agent, PAIR) == [20002, 20003]
    assert await hosts_of(agent, a_spec(ports=PAIR.ports)) == [20000, 20004]


async def test_start_without_enough_neighbours_leaves_nothing(host: Host) -> None:
    async with host(ports=(20000, 20002)) as agent:
        middle = await agent.sessions.start(an_id(), alone(20001))
        with pytest.raises(NoFreePortError):
            await agent.sessions.start(an_id(), PAIR)
        assert agent.sessions.all() == [middle]
        await agent.sessions.stop(middle.internal_id, EndReason.STOPPED)
        assert await hosts_of(agent, PAIR) in ([20000, 20001], [20001, 20002])


async def test_neighbours_that_the_engine_refuses_are_replaced_together(agent: Agent) -> None:
    agent.engine.ports.occupy("udp", 20001)
    session = await agent.sessions.start(an_id(), PAIR)
    assert [port.host for port in session.ports] == [20002, 20003]
    assert session.injected_env["TILTYARD_PORT_UDP_7778"] == "20003"


async def test_restart_keeps_neighbours(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), replace(PAIR, restart=True))
    await agent.fail(session, then=1)
    await agent.clock.advance(1)
    await agent.reached(session.internal_id, State.RUNNING)
    again = agent.now(session.internal_id)
    assert again.restart_count == 1
    assert again.ports == session.ports


async def test_next_run_of_the_agent_knows_the_ports_of_a_session(host: Host) -> None:
    async with host() as agent:
        pair = await agent.sessions.start(an_id(), PAIR)
        same = await agent.sessions.start(an_id(), SAME)
    async with host() as agent:
        assert agent.now(pair.internal_id).spec.contiguous
        assert agent.now(pair.internal_id).ports == pair.ports
        assert agent.now(same.internal_id).ports == same.ports
        assert await hosts_of(agent, PAIR) == [20003, 20004]


async def test_program_is_given_the_number_that_it_binds(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), SAME)
    [port] = session.ports
    assert port.container == 7777
    assert port.same
    assert session.injected_env["TILTYARD_PORT_UDP_7777"] == str(port.host)


@pytest.mark.parametrize("spec", [PAIR, SAME], ids=["contiguous", "same"])
async def test_prepared_container_serves_a_session(host: Host, spec: SessionSpec) -> None:
    async with host(prepared=PREPARED) as agent:
        prepared = await prepared_for(agent, spec)
        other = await agent.sessions.start(an_id(), a_spec(ports=(UDP,)))
        assert other.prepared == ""
        session = await agent.sessions.start(an_id(), spec)
        assert session.prepared == prepared.prepared_id
        assert session.ports == prepared.template.ports
        assert session.injected_env["TILTYARD_PORT_UDP_7777"] == str(session.ports[0].host)
        assert kept_ids(agent) == []


async def test_prepared_containers_give_back_ports_between_neighbours(host: Host) -> None:
    async with (
        host(prepared=PREPARED, ports=(20000, 20002)) as agent,
        keeping_on(agent) as keeping,
    ):
        await agent.sessions.start(an_id(), alone(20000))
        await keeping.ordered(a_spec(ports=(UDP,)))
        assert [each.template.ports[0].host for each in keeping.keeper.stock] == [20001]
        assert await hosts_of(agent, PAIR) == [20001, 20002]
        assert keeping.discarded(Discard.PORTS) == 1


async def test_standbys_of_a_pool_have_neighbours(agent: Agent) -> None:
    async with kept_full(agent, a_pool(2, ports=PAIR.ports, contiguous=True)):
        found = [[port.host for port in each.ports] for each in standbys(agent)]
    assert sorted(found) == [[20000, 20001], [20002, 20003]]


async def test_refusal_of_all_neighbours_leaves_nothing(agent: Agent) -> None:
    for port in range(20000, 20100):
        agent.engine.ports.occupy("udp", port)
    with pytest.raises(PortTakenError):
        await agent.sessions.start(an_id(), PAIR)
    await assert_nothing_is_left(agent)
