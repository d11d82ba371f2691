"""The address and port from which datagrams come of a session that players reach by IPv6."""

from collections.abc import Iterator

import pytest

from tests.demo_game import UDP_PORT
from tests.docker.machine import FIRST, Agent, Machine, a_machine
from tests.docker.test_source_addresses import Called, ports_translated, sender_of_first
from tests.support.private_network import run

SESSIONS = "2001:db8:20::/64"
PUBLIC = "2001:db8:1::2"
OF_THE_TEST = "2001:db8:1::1"


@pytest.fixture(scope="module")
def machine() -> Iterator[Machine]:
    """A machine whose engine has IPv6 as the docs describe it."""
    with a_machine(ipv6=True, fixed_cidr_v6=SESSIONS, userland_proxy=True) as machine:
        add = "ip -6 address add {}/64 dev {} nodad"
        run(*add.format(OF_THE_TEST, machine.engine.network.name).split())
        machine.run(*add.format(PUBLIC, "eth0").split())
        yield machine


@pytest.mark.parametrize("bind_address", ["::", PUBLIC])
def test_datagram_that_a_game_sends_first_comes_from_its_public_address(
    machine: Machine, bind_address: str
) -> None:
    agent = Agent(machine, ports=2, prepared=0)
    agent.settings |= {"public_address": PUBLIC, "bind_address": bind_address}
    with agent, Called(machine, OF_THE_TEST) as called:
        session = agent.play()
        other = agent.play()
        assert sender_of_first(agent, session, UDP_PORT, called) == (PUBLIC, FIRST)
        assert sender_of_first(agent, other, UDP_PORT, called) == (PUBLIC, FIRST + 1)
        assert ports_translated(machine, 6) == [FIRST, FIRST + 1]
        assert ports_translated(machine) == []
        agent.end(session)
        assert ports_translated(machine, 6) == [FIRST + 1]
