"""The address and port from which a session's datagrams come: those that its callers know."""

import json
import shutil
import socket
import sys
from collections.abc import Iterator
from typing import Any, Self

import pytest

from tests.docker.machine import ENDED, FIRST, Agent, Machine, a_machine, port_of
from tests.docker.stack import eventually
from tests.support.harness import ROOT
from tests.support.private_network import run
from tiltyard.agent.v1 import agent_pb2 as pb

ANOTHER = "192.0.2.77"  # Of the host, which sends to the test from its first one


@pytest.fixture(
    scope="module",
    params=[
        pytest.param("proxy", marks=pytest.mark.slow),
        "no-proxy",
        pytest.param("legacy", marks=pytest.mark.slow),
    ],
)
def machine(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Machine]:
    """A machine with two addresses; `legacy`: its engine does not use nftables."""
    programs = tmp_path_factory.mktemp("programs")
    if request.param == "legacy":
        for tool in ("iptables", "ip6tables"):
            legacy = shutil.which(f"{tool}-legacy")
            assert legacy is not None
            (programs / tool).symlink_to(legacy)
    proxy = request.param == "proxy"
    with a_machine(userland_proxy=proxy, programs=programs) as machine:
        run(*f"ip route add {ANOTHER} dev {machine.engine.network.name}".split())
        machine.run(*f"ip address add {ANOTHER}/32 dev eth0".split())
        yield machine


@pytest.fixture(autouse=True)
def no_table(machine: Machine) -> None:
    """The containers of the last test were removed after its agent."""
    ask(machine, "table.remove()")


class Called:
    """A peer outside of the machine, to which games send without being asked."""

    def __init__(self, machine: Machine) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind((machine.engine.network.host_address, 0))
        self._socket.settimeout(10)
        self.address = "{}:{}".format(*self._socket.getsockname())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def caller(self) -> tuple[str, tuple[str, int]]:
        """The text of the next datagram, and the address and port from which it came."""
        text, sender = self._socket.recvfrom(100)
        return text.decode(), sender

    def send(self, text: str, to: tuple[str, int]) -> None:
        self._socket.sendto(text.encode(), to)


def known(agent: Agent, session: pb.Session) -> tuple[str, int]:
    """The address and port of a session, as its callers know them."""
    return agent.machine.engine.network.address, port_of(session)


def test_datagram_that_a_game_sends_first_comes_from_its_public_address(machine: Machine) -> None:
    with Agent(machine, ports=3, prepared=1) as agent, Called(machine) as called:
        for _ in ("cold", "prepared"):
            session = agent.play("--call", called.address)
            assert called.caller() == (session.internal_id, known(agent, session))
            eventually(lambda: len(agent.prepared_containers()) == 1, "one is prepared")


def test_source_is_the_public_address_among_several_of_the_host(machine: Machine) -> None:
    agent = Agent(machine, ports=1)
    agent.settings |= {"public_address": ANOTHER}
    with agent, Called(machine) as called:
        session = agent.play("--call", called.address)
        assert called.caller() == (session.internal_id, (ANOTHER, FIRST))


def test_source_is_the_host_port_alone_if_no_interface_has_the_public_address(
    machine: Machine,
) -> None:
    agent = Agent(machine, ports=1)
    agent.settings |= {"public_address": "203.0.113.5"}
    with agent, Called(machine) as called:
        session = agent.play("--call", called.address)
        assert called.caller() == (session.internal_id, (machine.engine.network.address, FIRST))


def test_forgotten_flow_goes_on_from_the_same_port(machine: Machine) -> None:
    with Agent(machine, ports=1) as agent, Called(machine) as old, Called(machine) as other:
        session = agent.play("--call", other.address)
        other.caller()  # It has bound its port
        old.send("call " + old.address, known(agent, session))
        assert old.caller() == (session.internal_id, known(agent, session))
        machine.run("conntrack", "-D", "-p", "udp", "--orig-port-dst", str(FIRST))
        other.send("call " + old.address, known(agent, session))
        assert old.caller() == (session.internal_id, known(agent, session))


def test_ended_session_leaves_no_translation_and_no_flow(machine: Machine) -> None:
    with (
        Agent(machine, ports=2, prepared=0) as agent,
        Called(machine) as called,
        Called(machine) as other,
    ):
        first = agent.play("--call", called.address)
        assert called.caller() == (first.internal_id, known(agent, first))
        assert [public["port"] for public in translations(machine)] == [FIRST]
        agent.end(first)
        assert translations(machine) == []
        agent.play()  # has the first one's address, and the other port
        second = agent.play("--call", other.address)
        other.caller()  # It has bound its port
        assert port_of(second) == FIRST
        # Its flow began with what the first game sent, and would lead to that one's address.
        called.send("call " + called.address, known(agent, second))
        assert called.caller() == (second.internal_id, known(agent, second))


def test_next_container_of_an_address_has_its_own_port(machine: Machine) -> None:
    with Agent(machine, ports=2, prepared=0) as agent, Called(machine) as called:
        first = agent.play()
        [before] = translations(machine)
        agent.end(first)
        second = agent.play("--call", called.address)
        [after] = translations(machine)
        assert after["container"] == before["container"]
        assert called.caller() == (second.internal_id, (known(agent, second)[0], FIRST + 1))


def test_restarted_game_is_translated_and_removed_table_is_back(machine: Machine) -> None:
    with Agent(machine, ports=1, prepared=0) as agent, Called(machine) as called:
        session = agent.play("--call", called.address, restart=True)
        assert called.caller() == (session.internal_id, known(agent, session))
        [container] = agent.containers()
        container.kill("SIGKILL")
        assert called.caller() == (session.internal_id, known(agent, session))
        before = translations(machine)
        ask(machine, "table.remove()")
        assert translations(machine) == []
        eventually(lambda: translations(machine) == before, "it is back", patience=15)


@pytest.mark.slow
def test_restarted_agent_keeps_translations_of_what_still_runs(machine: Machine) -> None:
    with Agent(machine, ports=2, prepared=0) as agent, Called(machine) as called:
        ends = agent.play()
        stays = agent.play("--call", called.address)
        called.caller()  # It has bound its port
        kept = [each for each in translations(machine) if each["port"] == port_of(stays)]
        agent.kill()
        agent.container_of(ends).kill("SIGKILL")
        agent.start()
        agent.until(ends, *ENDED)
        called.send("call " + called.address, known(agent, stays))
        assert called.caller() == (stays.internal_id, known(agent, stays))
        eventually(lambda: translations(machine) == kept, "that alone is left", patience=40)


def ask(machine: Machine, code: str) -> str:
    """Run code in the machine's network namespace, which has our table as `table`."""
    begin = "from agent.network.nat_table import NatTable; table = NatTable(); "
    python = ("env", f"PYTHONPATH={ROOT}", sys.executable, "-c", begin + code)
    return machine.run(*python)


def translations(machine: Machine) -> list[dict[str, Any]]:
    """The translations in the kernel, each with the container's address and the host port."""
    listed = ask(
        machine,
        "import json; print(json.dumps([{'container': private.address.hex(), 'port': public.port}"
        " for private, public in (table.read() or {}).items()]))",
    )
    found: list[dict[str, Any]] = json.loads(listed)
    return found
