"""The address and port from which a session's datagrams come: those that its callers know."""

import ctypes
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any, Self, TypeVar

import pytest

from agent.network.sources.nat_table import NatTable
from tests.docker import frequent_looks
from tests.docker.machine import ENDED, FIRST, Agent, Machine, a_machine, port_of
from tests.docker.stack import PATIENCE, eventually
from tests.docker.test_firewall import inside
from tests.support.private_network import run
from tiltyard.agent.v1 import agent_pb2 as pb

T = TypeVar("T")

CLONE_NEWNET = 0x40000000
ANOTHER = "192.0.2.77"  # Of the host, which sends to the test from its first one

SEND = """
import socket, sys
own, address, port = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
with socket.socket(family, socket.SOCK_DGRAM) as game:
    game.settimeout(10)
    if family == socket.AF_INET6:
        game.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    game.bind(("", int(own)))
    game.sendto(b"first", (address, int(port)))
    print(game.recv(100).decode())
"""


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
    with_table(machine, NatTable.remove)


class Called:
    """A peer outside of the machine, to which games send without being asked."""

    def __init__(self, machine: Machine, address: str = "") -> None:
        """`address`: of the test for the machine, by default that of IPv4."""
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        self._socket.bind((address or machine.engine.network.host_address, 0))
        self._socket.settimeout(PATIENCE)
        self.name = self._socket.getsockname()
        self.address = "{}:{}".format(*self.name)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    def caller(self) -> tuple[str, tuple[str, int]]:
        """The text of the next datagram, and the address and port from which it came."""
        text, sender = self._socket.recvfrom(100)
        return text.decode(), sender[:2]

    def send(self, text: str, to: tuple[str, int]) -> None:
        self._socket.sendto(text.encode(), to)


def sender_of_first(agent: Agent, session: pb.Session, port: int, called: Called) -> Any:
    """The source of a datagram from a port of a session's container, which gets an answer."""
    prefix, _ = inside(agent, session)
    address, to_port, *_ = called.name
    command = [*prefix, sys.executable, "-c", SEND, str(port), address, str(to_port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as game:
        text, sender = called.caller()
        assert text == "first"
        called.send("answer", sender)
        assert game.communicate(timeout=PATIENCE)[0] == "answer\n"
    return sender


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
        assert ports_translated(machine) == [FIRST]
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
    agent = Agent(machine, ports=1, prepared=0)
    agent.program = frequent_looks.PROGRAM
    with agent, Called(machine) as called:
        session = agent.play("--call", called.address, restart=True)
        assert called.caller() == (session.internal_id, known(agent, session))
        [container] = agent.containers()
        container.kill("SIGKILL")
        assert called.caller() == (session.internal_id, known(agent, session))
        before = translations(machine)
        assert before
        with_table(machine, NatTable.remove)
        eventually(lambda: translations(machine) == before, "it is back")


def test_container_does_not_send_from_a_port_that_may_be_of_another(machine: Machine) -> None:
    agent = Agent(machine, ports=2, prepared=0, firewall_bridges=["docker0"])
    with agent, Called(machine) as called:
        other = agent.play()
        session = agent.play("--call", called.address)
        assert called.caller() == (session.internal_id, known(agent, session))
        address, port = sender_of_first(agent, session, port_of(other), called)
        assert address == known(agent, session)[0]
        assert port > FIRST + 1
        # Other ports stay what they are.
        _, port = sender_of_first(agent, session, FIRST + 2, called)
        assert port == FIRST + 2


def test_killed_engine_leaves_translations_of_games_that_go_on(machine: Machine) -> None:
    with Agent(machine, ports=3, prepared=0) as agent, Called(machine) as called:
        ends = agent.play()
        stays = agent.play("--call", called.address)
        called.caller()  # It has bound its port
        kept = [each for each in translations(machine) if each["port"] == port_of(stays)]
        process = agent.processes()[ends.internal_id]
        machine.engine.kill()
        os.kill(process, signal.SIGKILL)
        eventually(lambda: translations(machine) == kept, "that alone is left")
        machine.engine.start()
        agent.until(ends, *ENDED)
        called.send("call " + called.address, known(agent, stays))
        assert called.caller() == (stays.internal_id, known(agent, stays))
        agent.end(agent.until_plays())
        assert translations(machine) == kept


def test_engine_that_ends_its_games_at_its_start_leaves_no_translation_of_them() -> None:
    with (
        a_machine(live_restore=False) as machine,
        Agent(machine, ports=2, prepared=0) as agent,
        Called(machine) as called,
    ):
        ends = agent.play()
        restarts = agent.play("--call", called.address, restart=True)
        assert called.caller() == (restarts.internal_id, known(agent, restarts))
        process = agent.processes()[restarts.internal_id]
        machine.engine.kill()
        os.kill(process, signal.SIGKILL)
        eventually(lambda: ports_translated(machine) == [port_of(ends)], "one is left")
        machine.engine.start()
        assert called.caller() == (restarts.internal_id, known(agent, restarts))
        agent.until(ends, *ENDED)
        assert ports_translated(machine) == [port_of(restarts)]


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


def with_table(machine: Machine, work: Callable[[NatTable], T], version: int = 4) -> T:
    """Call this with our table in the machine's network namespace, which a thread enters."""

    def within() -> T:
        with Path(f"/run/netns/{machine.engine.network.name}").open() as namespace:
            libc = ctypes.CDLL(None, use_errno=True)
            assert libc.setns(namespace.fileno(), CLONE_NEWNET) == 0
        with closing(NatTable(version)) as table:
            return work(table)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(within).result()


def translations(machine: Machine, version: int = 4) -> list[dict[str, Any]]:
    """The translations in the kernel, each with the container's address and the host port."""
    found = with_table(machine, NatTable.read, version) or {}
    return [
        {"container": private.address.hex(), "port": public.port}
        for private, public in found.items()
    ]


def ports_translated(machine: Machine, version: int = 4) -> list[int]:
    """The host ports that have translations in the kernel."""
    return sorted(each["port"] for each in translations(machine, version))
