"""Ports of sessions: skipped, reused, flushed (F19 to F23)."""

import asyncio
import itertools

import pytest

from agent.domain import errors
from agent.domain.containers.engine import name_of
from agent.domain.sessions.session import Session
from agent.sessions.containers import FIREWALL_TRIES
from tests.support.agent.hosts import Agent, Host, assert_nothing_is_left, until
from tests.support.agent.pools import session_json
from tests.support.agent.samples import a_spec, an_id
from tiltyard.contract import EndReason, NetworkMode, PortRequest, Protocol, State

UDP = PortRequest(7777, Protocol.UDP)
FIREWALL = errors.FirewallFailedError("start", "iptables failed")


async def play(agent: Agent, *ports: PortRequest) -> Session:
    return await agent.sessions.start(an_id(), a_spec(ports=ports or (UDP,)))


async def end(agent: Agent, session: Session) -> None:
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)


# -- F19, F20: allocation ----------------------------------------------------------------------


async def test_f19_a_port_of_the_host_is_passed_over_before_the_engine_is_asked(
    host: Host,
) -> None:
    taken = {(Protocol.UDP, 20000)}
    async with host(ports=(20000, 20002), is_free=lambda *port: port not in taken) as agent:
        session = await agent.sessions.start(an_id(), a_spec())
        assert [port.host for port in session.ports] == [20001, 20000]
        assert host.engine.count("create") == 1
        with pytest.raises(errors.PortTakenError):
            await play(agent, PortRequest(7777, Protocol.UDP, pinned=20000))
        assert [found.internal_id for found in agent.sessions.all()] == [session.internal_id]
        await end(agent, session)
        assert agent.nothing_is_held()
        taken.clear()
        assert [(await play(agent)).ports[0].host for _ in range(3)] == [20002, 20000, 20001]


async def test_f19_a_port_that_the_engine_refuses_goes_to_the_end_of_the_queue(host: Host) -> None:
    async with host(ports=(20000, 20003)) as agent:
        host.engine.ports.occupy("udp", 20000)
        assert (await play(agent)).ports[0].host == 20001
        assert len(await host.engine.list(agent.runtime.agent_id)) == 1
        host.engine.ports.vacate("udp", 20000)
        assert [(await play(agent)).ports[0].host for _ in range(3)] == [20002, 20003, 20000]


async def test_port_that_replaces_a_refused_one_is_what_the_game_reads(agent: Agent) -> None:
    agent.engine.ports.occupy("udp", 20000)
    session = await play(agent)
    assert session.injected_env["TILTYARD_PORT_UDP_7777"] == "20001"
    assert session_json(agent, session)["ports"] == [
        {"type": "udp", "container": 7777, "host": 20001}
    ]


async def test_pinned_port_that_the_engine_refuses_is_not_replaced(agent: Agent) -> None:
    agent.engine.ports.occupy("udp", 20050)
    with pytest.raises(errors.PortTakenError):
        await play(agent, PortRequest(7777, Protocol.UDP, pinned=20050))
    assert agent.engine.count("start") == 1
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize("by", ["sessions", "processes"])
async def test_f20_no_port_left_leaves_nothing_and_passes(host: Host, by: str) -> None:
    taken: set[int] = set()
    async with host(ports=(20000, 20002), is_free=lambda _, port: port not in taken) as agent:
        three = [await play(agent) for _ in range(3)] if by == "sessions" else []
        if by == "processes":
            taken |= {20000, 20001, 20002}
        directories = agent.directories()
        reserved = agent.reservations.capacity.reserved
        with pytest.raises(errors.NoFreePortError) as error:
            await play(agent)
        assert "udp" in str(error.value)
        assert agent.directories() == directories
        assert agent.reservations.capacity.reserved == reserved
        assert len(agent.sessions.all()) == len(three)
        if three:
            await end(agent, three[1])
        taken.discard(20001)
        assert (await play(agent)).ports[0].host == 20001


async def test_order_of_free_ports_survives_a_restart(host: Host) -> None:
    """Ports of sessions that ended last are reused last."""
    async with host(ports=(20000, 20004)) as agent:
        sessions = [await play(agent) for _ in range(4)]
        for ended in (2, 0, 1):
            await host.clock.advance(1)
            await end(agent, sessions[ended])
    async with host(ports=(20000, 20004)) as agent:
        ports = [(await play(agent)).ports[0].host for _ in range(4)]
        assert ports == [20004, 20002, 20000, 20001]
        with pytest.raises(errors.NoFreePortError):
            await play(agent)


# -- F21: flows are flushed once, when the ports are published and no game has used them ----------


@pytest.mark.parametrize("mode", NetworkMode)
async def test_f21_flows_to_the_ports_are_forgotten_before_the_game_starts(
    agent: Agent, mode: NetworkMode
) -> None:
    spec = a_spec(network_mode=mode)
    start = await agent.held_at("flows", agent.sessions.start(an_id(), spec))
    assert agent.engine.calls[-1][0] == "start"
    assert agent.sessions.started() == []
    assert not agent.engine.executed
    agent.steps.release("flows")
    session = await start
    assert agent.flows_forgotten == [session.ports]
    assert agent.engine.executed == {session.container: 1}


async def test_f21_other_ports_after_a_refusal_are_flushed(agent: Agent) -> None:
    agent.engine.fail_next("start", errors.PortTakenError(Protocol.UDP, 20000))
    session = await play(agent)
    assert agent.flows_forgotten == [session.ports]


async def test_f21_a_start_whose_answer_was_lost_forgets_them_too(agent: Agent) -> None:
    agent.engine.answer_lost_next("start")
    session = await play(agent)
    assert agent.flows_forgotten == [session.ports]


async def test_f21_a_restart_forgets_them_before_the_game_starts(agent: Agent) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.steps.hold("flows")
    life = await agent.fail(session, then=1)
    await agent.steps.reached("flows")
    assert life.session.state is State.RESTARTING
    assert agent.engine.executed == {session.container: 1}
    agent.steps.release("flows")
    await agent.reached(session.internal_id, State.RUNNING)
    assert agent.flows_forgotten == [session.ports] * 2


async def test_f21_what_a_killed_agent_left_to_do_is_done_by_the_next(host: Host) -> None:
    async with host() as agent:
        session = await agent.sessions.start(an_id(), a_spec(restart=True))
        agent.steps.hold("flows")
        await agent.fail(session, then=1)
        await agent.steps.reached("flows")
    async with host() as agent:
        await host.clock.advance(1)
        await agent.reached(session.internal_id, State.RUNNING)
        assert agent.flows_forgotten == [session.ports]


@pytest.mark.parametrize("agent_is_there", [False, True])
async def test_f21_a_container_that_somebody_restarted_has_them_forgotten(
    host: Host, agent_is_there: bool
) -> None:
    async with host() as agent:
        session = await play(agent)
        agent.flows_forgotten.clear()
        if agent_is_there:
            host.engine.hold("inspect")
        host.engine.start_from_outside(name_of(session))
        if agent_is_there:
            host.engine.release("inspect")
            life = agent.sessions.life(session.internal_id)
            await life.wait_for(lambda now: now.process != session.process)
            assert agent.flows_forgotten == [session.ports]
            return
        await agent.sessions.close()
    async with host() as agent:
        await until(lambda: agent.flows_forgotten == [session.ports])


async def test_f21_no_flow_to_a_game_that_runs_is_forgotten(host: Host) -> None:
    """Its answers in flight would leave with another port."""
    async with host() as agent:
        session = await play(agent)
    async with host() as agent:
        await agent.pass_over()
        assert agent.now(session.internal_id).state is State.RUNNING
        assert agent.flows_forgotten == []


# -- F23: other programs hold the firewall -----------------------------------------------------


async def test_f23_a_start_is_tried_again_after_growing_waits(agent: Agent) -> None:
    agent.engine.fail_next("start", FIREWALL, times=FIREWALL_TRIES - 1)
    begin = agent.clock.monotonic()
    start = asyncio.create_task(play(agent))
    moments = []
    for number in range(1, FIREWALL_TRIES + 1):
        while agent.engine.count("start") < number:
            await agent.clock.advance(0.01)
        moments.append(agent.clock.monotonic() - begin)
    assert (await start).state is State.RUNNING
    waits = [later - sooner for sooner, later in itertools.pairwise(moments)]
    for wait, mean in zip(waits, (0.2, 0.4, 0.8), strict=True):
        assert 0.5 * mean - 0.02 <= wait <= 1.5 * mean + 0.02
    assert agent.engine.count("create") == 1


async def test_f23_waits_of_starts_differ(agent: Agent) -> None:
    agent.engine.fail_next("start", FIREWALL, times=4)
    starts = [asyncio.create_task(play(agent)) for _ in range(4)]
    seen = set()
    while not all(start.done() for start in starts):
        await agent.clock.advance(0.001)
        seen.add(agent.engine.count("start"))
    assert len(seen) > 2  # not all of them at one moment
    await asyncio.gather(*starts)


async def test_f23_a_firewall_that_stays_broken_is_a_refusal_that_leaves_nothing(
    agent: Agent,
) -> None:
    agent.engine.fail_next("start", FIREWALL, times=FIREWALL_TRIES)
    start = asyncio.create_task(play(agent))
    await agent.clock.advance(3)
    with pytest.raises(errors.FirewallFailedError):
        await start
    assert agent.engine.count("start") == FIREWALL_TRIES
    await assert_nothing_is_left(agent)


@pytest.mark.parametrize(
    "error",
    [
        FIREWALL,
        errors.EngineUnavailableError("gone"),
    ],
)
async def test_f23_a_restart_that_the_host_cannot_do_now_is_done_later(
    agent: Agent, error: errors.AgentError
) -> None:
    session = await agent.sessions.start(an_id(), a_spec(restart=True))
    agent.engine.fail_next("start", error, times=3 * FIREWALL_TRIES)
    life = await agent.fail(session, then=3)
    assert life.session.state is State.RESTARTING
    await agent.clock.advance(60)
    restarted = life.session
    assert restarted.state is State.RUNNING
    assert restarted.restart_count == 1
    assert agent.flows_forgotten[-1] == session.ports
