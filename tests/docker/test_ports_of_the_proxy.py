"""Ports at IPv6 addresses of a host whose containers have IPv4 only: the engine's proxy relays."""

import os
from collections.abc import Iterator
from ipaddress import ip_address
from pathlib import Path

import pytest

from agent.domain.sessions.session import Port, Session
from agent.network.firewall import Firewall
from agent.network.firewall_watch import FirewallWatch, published_ports
from agent.settings.model import load_config
from tests.docker.machine import FIRST, Agent, a_machine
from tests.docker.test_firewall import inside, tools_within
from tests.support.agent.samples import a_session
from tests.support.fake_clock import FakeClock
from tiltyard.contract import Protocol, State


def as_recorded(agent: Agent) -> Session:
    """Start a session; return it with the addresses that the engine reports."""
    _, network = inside(agent, agent.play())
    return a_session(
        state=State.RUNNING,
        ports=(Port(container=7777, protocol=Protocol.UDP, host=FIRST),),
        address=network["IPAddress"],
        ipv6_address=network["GlobalIPv6Address"],
    )


@pytest.fixture
def watch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FirewallWatch]:
    """The watch of a host with a session whose port is published on all addresses."""
    with a_machine(userland_proxy=True) as machine:
        agent = Agent(machine, ports=2, prepared=0)
        agent.settings |= {"bind_address": "::", "firewall_bridges": ["docker0"]}
        with agent:
            session = as_recorded(agent)
            assert f":{FIRST} " in machine.run("ss", "-Hlun", "-6")
            tools = tools_within(machine.engine.network.inside(), "", tmp_path)
            monkeypatch.setenv("PATH", f"{tools}:{os.environ['PATH']}")
            firewall = Firewall(load_config(agent.config, {}).firewall())
            firewall.apply()
            yield FirewallWatch(
                firewall,
                FakeClock(),
                bind_address=ip_address("::"),
                published=lambda: published_ports([session], 6),
                held=lambda: None,
                notify=lambda: None,
            )


async def test_port_that_the_proxy_relays_lacks_no_rule(watch: FirewallWatch) -> None:
    await watch.look()
    await watch.look()
    assert watch.warnings == ()
    await watch.close()
