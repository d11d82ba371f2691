"""A whole agent on a host whose rules lead ports elsewhere."""

from collections.abc import Callable, Collection
from pathlib import Path

import pytest

from agent.domain.errors import NoFreePortError, PortTakenError
from agent.domain.sessions.session import Session
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import until
from tests.support.agent.samples import IMAGE, a_spec, an_id
from tests.support.agent.served import WholeAgent
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tiltyard.contract import PortRequest, Protocol

RULE = "-A DOCKER ! -i docker0 -p {0} -m {0} --dport {1} -j DNAT --to-destination 172.17.0.2:7777"
CHECK_SECONDS = 10.0
UDP = PortRequest(7777, Protocol.UDP)

SetRules = Callable[[Collection[tuple[str, int]]], None]


@pytest.fixture
def set_rules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SetRules:
    """Set the ports of the rules that iptables-save prints."""
    tools = tmp_path / "tools"
    tools.mkdir()
    rules = tmp_path / "rules"

    def write(ports: Collection[tuple[str, int]]) -> None:
        lines = [RULE.format(protocol, port) for protocol, port in ports]
        rules.write_text("\n".join(["*nat", ":DOCKER - [0:0]", *lines, "COMMIT", ""]))

    for name in ("iptables-save", "ip6tables-save"):
        (tools / name).write_text(f"#!/bin/sh\nexec /bin/cat {rules}\n")
        (tools / name).chmod(0o755)
    monkeypatch.setenv("PATH", str(tools), prepend=":")
    write([])
    return write


def an_agent(folder: Path, clock: FakeClock, engine: FakeEngine, prepared: int = 0) -> WholeAgent:
    engine.image_store.add(IMAGE)
    return WholeAgent(
        folder,
        "agent",
        engine=engine,
        clock=clock,
        port_range="20000-20002",
        firewall_bridges=("docker0",),
        prepared=prepared,
    )


async def play(agent: WholeAgent, pinned: int = 0) -> Session:
    ports = (PortRequest(7777, Protocol.UDP, pinned=pinned),)
    return await agent.sessions.start(an_id(), a_spec(ports=ports))


async def checked(agent: WholeAgent, clock: FakeClock) -> None:
    """Wait until the agent has checked the rules, once it knows its containers."""
    await until(lambda: agent.sessions.reconciled)
    await clock.advance(CHECK_SECONDS)


async def test_no_session_gets_a_port_until_the_rule_that_leads_it_elsewhere_is_gone(
    tmp_path: Path, clock: FakeClock, engine: FakeEngine, set_rules: SetRules
) -> None:
    set_rules([("udp", 20000), ("tcp", 20001)])
    async with an_agent(tmp_path, clock, engine) as agent:
        await checked(agent, clock)
        sessions = [await play(agent) for _ in range(2)]
        assert [session.ports[0].host for session in sessions] == [20001, 20002]
        with pytest.raises(NoFreePortError):
            await play(agent)
        with pytest.raises(PortTakenError):
            await play(agent, pinned=20000)
        set_rules([("udp", 20001), ("udp", 20002)])
        await clock.advance(CHECK_SECONDS)
        assert (await play(agent)).ports[0].host == 20000


async def test_operator_sees_ports_that_are_led_elsewhere(
    tmp_path: Path, clock: FakeClock, engine: FakeEngine, set_rules: SetRules
) -> None:
    set_rules([("udp", 20000)])
    async with an_agent(tmp_path, clock, engine) as agent:
        await checked(agent, clock)
        await clock.advance(CHECK_SECONDS)
        assert "free ports elsewhere (udp 20000 to 172.17.0.2:7777)" in await agent.ok("status")
        set_rules([])
        await clock.advance(CHECK_SECONDS)
        assert "free ports elsewhere" not in await agent.ok("status")


async def test_prepared_container_gets_no_port_that_is_led_elsewhere(
    tmp_path: Path, clock: FakeClock, engine: FakeEngine, set_rules: SetRules
) -> None:
    set_rules([("udp", 20000)])
    async with an_agent(tmp_path, clock, engine, prepared=1) as agent:
        await checked(agent, clock)
        agent.daemon.prepared.set_shapes([a_shape(ports=(UDP,))])
        await until(lambda: len(agent.daemon.prepared.stock) == 1)
        assert list(engine.ports.published) == [("udp", 20001)]


async def test_rule_of_a_prepared_container_leads_nothing_elsewhere_after_a_restart(
    tmp_path: Path, clock: FakeClock, engine: FakeEngine, set_rules: SetRules
) -> None:
    async with an_agent(tmp_path, clock, engine, prepared=1) as agent:
        await checked(agent, clock)
        agent.daemon.prepared.set_shapes([a_shape(ports=(UDP,))])
        await until(lambda: len(agent.daemon.prepared.stock) == 1)
        set_rules(engine.ports.published)
    engine.hold("list")
    async with an_agent(tmp_path, clock, engine, prepared=1) as agent:
        await clock.advance(CHECK_SECONDS)  # before the agent knows its prepared containers
        engine.release("list")
        await until(lambda: agent.sessions.reconciled)
        assert (await play(agent, pinned=20000)).ports[0].host == 20000
        await clock.advance(2 * CHECK_SECONDS)
        assert "free ports elsewhere" not in await agent.ok("status")
