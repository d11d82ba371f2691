"""Hosts with their own engines and networks, enrolled with a control plane over TLS.

The network between them can be cut, lose packets or disappear.
"""

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from agent.domain.sessions.session import Session
from tests.docker.machine import Machine
from tests.docker.operated_host import Operator
from tests.docker.stack import Served, eventually
from tests.faults.callers import assert_callers_served
from tests.faults.containers import owner_of, remove_container
from tests.support.chaos_registry import ChaosRegistry
from tests.support.deployment import PATIENT, REGION
from tests.support.harness import AgentProcess, ControlPlaneProcess, Registry, free_port
from tests.support.private_engine import PrivateEngine

MARKS = [pytest.mark.slow, pytest.mark.timeout(600)]  # of tests on several of them

RPC_PORT = 7444
TAG = "v1"
SHORT_TIMEOUTS: Mapping[str, Any] = {"unresponsive_after": 6.0, "unreachable_after": 10.0}
"""Settings with which a host is soon unresponsive, but not after a stall of some seconds;
heartbeats come every 2 s."""
BOTH_WAYS = ("INPUT", "OUTPUT")
TO_THE_HOST = ("INPUT",)
FROM_THE_HOST = ("OUTPUT",)

Machines = tuple[list[Machine], str]
"""Machines, and a registry address that they and the test can reach."""


class RemoteHost(AgentProcess):
    """An agent in its engine's network. `name`: of the host."""

    def __init__(self, name: str, machine: Machine, **settings: object) -> None:
        super().__init__(
            machine.engine.socket,
            **{
                "cpu": 16,
                "ram": 8192,
                "stop_grace": 1,
                "bind_address": "0.0.0.0",
                "public_address": machine.engine.network.address,
                "rpc_listen": f"0.0.0.0:{RPC_PORT}",
                **settings,
            },
        )
        self.name = name
        self.machine = machine
        self.wrapper = machine.engine.network.inside()
        self.watched = machine.watched(self)

    @property
    def ip(self) -> str:
        """The address for players and the control plane."""
        return self.machine.engine.network.address

    def cut_off(self, ways: Sequence[str]) -> AbstractContextManager[None]:
        """Drop the traffic between the host and its control plane, but not of players."""
        return self.dropping(ways, "-p", "tcp")

    @contextmanager
    def dropping(self, ways: Sequence[str], *matching: str) -> Iterator[None]:
        """Drop packets of the host itself, but not forwarded ones of games."""
        links = {"INPUT": ("-i", "eth0"), "OUTPUT": ("-o", "eth0")}
        rules = [(way, *links[way], *matching, "-j", "DROP") for way in ways]
        for rule in rules:
            self.machine.run("iptables", "-w", "-I", *rule)
        try:
            yield
        finally:
            for rule in rules:
                self.machine.run("iptables", "-w", "-D", *rule)

    def games(self) -> list[tuple[str, int]]:
        """The public session id and the process of each running game."""
        sessions = self.watched.sessions()
        names = {each.internal_id: each.spec.identity for each in sessions}
        found = []
        for container in self.machine.client.containers.list(ignore_removed=True):
            internal_id = owner_of(container, sessions)
            if internal_id in names:
                pid = int(container.attrs["State"]["Pid"])
                found.append((names[internal_id].session_id, pid))
        return found


@dataclass
class Fleet(Served):
    """A control plane and its hosts."""

    control_plane: ControlPlaneProcess
    operator: Operator
    hosts: Mapping[str, RemoteHost]  # By address, as in created sessions

    def host_of(self, made: Mapping[str, Any]) -> RemoteHost:
        return self.hosts[made["host"]]

    def other_than(self, host: RemoteHost) -> RemoteHost:
        [other] = [each for each in self.hosts.values() if each is not host]
        return other

    def live(self) -> set[str]:
        """Ids of the running sessions, as the API lists them."""
        return {each["id"] for each in self.client.sessions()}

    def enrol(self, host: RemoteHost, *options: str) -> None:
        """Enrol a host, also again."""
        assert f"enrolled as {host.name}" in self.operator.enrol(host, host.name, *options)

    def until_ready(self) -> None:
        names = [host.name for host in self.hosts.values()]
        eventually(lambda: all(map(self.operator.is_ready, names)), "every host is ready")

    def until_reported(self, host: RemoteHost) -> None:
        """Wait for the next message of a host."""
        now_ms = time.time() * 1000
        eventually(
            lambda: (self.operator.shown(host.name)["lastReport"] or 0) > now_ms,
            f"{host.name} is connected again",
        )

    def logged(self, text: str) -> list[str]:
        """Lines of the control plane's log with this text."""
        lines = self.control_plane.process.log.read_text().splitlines()
        return [line for line in lines if text in line]

    def until_pulled(self) -> None:
        def everywhere() -> bool:
            return all(
                host.machine.image in self.operator.shown(host.name)["images"]
                for host in self.hosts.values()
            )

        eventually(everywhere, "every host has the game")

    def everything_runs_once(self) -> None:
        """Wait until the running games are those that the API lists, each once."""

        def once() -> bool:
            running = [who for host in self.hosts.values() for who, _ in host.games()]
            return sorted(running) == sorted(self.live())

        eventually(once, "the running games are those in the API")

    def sessions(self) -> list[Session]:
        """The sessions recorded by all hosts."""
        return [each for host in self.hosts.values() for each in host.watched.sessions()]

    def assert_survived(self) -> None:
        """Check the invariants after a fault, on every host and for every caller."""
        for host in self.hosts.values():
            host.watched.assert_survived()
        assert_callers_served(self.control_plane, self.sessions())


@contextmanager
def remote_machines(registry: Registry, count: int) -> Iterator[Machines]:
    with ExitStack() as stack:
        engines = [stack.enter_context(PrivateEngine()) for _ in range(count)]
        near = [engine.network.host_address for engine in engines]
        front = stack.enter_context(ChaosRegistry(registry.address, "127.0.0.1", *near))
        image = front.push("demo-game", TAG)
        for engine in engines:
            engine.network.lead_to_host(int(front.address.rpartition(":")[2]))
        machines = [Machine(engine, image.reference) for engine in engines]
        for machine in machines:
            stack.callback(machine.client.close)
        yield machines, front.address


@contextmanager
def a_fleet(
    machines: Sequence[Machine],
    registry: str,
    *,
    agent: Mapping[str, object] | None = None,
    plane: type[ControlPlaneProcess] = ControlPlaneProcess,
    **settings: object,
) -> Iterator[Fleet]:
    """Enrolled hosts and their control plane, with the game ready to start.

    `settings`: of the control plane, with long timeouts by default.
    """
    enrol_port = free_port()
    with ExitStack() as stack:
        hosts = []
        for number, machine in enumerate(machines, 1):
            host = RemoteHost(f"host-{number}", machine, **(agent or {}))
            hosts.append(stack.enter_context(host))
            stack.callback(_remove_containers, machine)
        control_plane = stack.enter_context(
            plane(
                [], {"local": registry}, enrol_listen=f":{enrol_port}", **{**PATIENT, **settings}
            )
        )
        near = machines[0].engine.network.host_address  # all of them reach it
        operator = Operator(control_plane, f"https://{near}:{enrol_port}")
        fleet = Fleet(control_plane, operator, {host.ip: host for host in hosts})
        for host in hosts:
            fleet.enrol(host, "--region", REGION)
        fleet.until_ready()
        fleet.make_game()
        fleet.until_pulled()
        yield fleet
        fleet.assert_survived()


def _remove_containers(machine: Machine) -> None:
    for container in machine.client.containers.list(all=True, ignore_removed=True):
        remove_container(container)
