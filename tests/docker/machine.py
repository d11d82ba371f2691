"""A host in a network namespace: an engine, an agent, and players outside."""

import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import docker
import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.demo_game import UDP_PORT
from tests.docker.player import SteadyPlayer
from tests.docker.stack import PATIENCE, eventually
from tests.faults.containers import (
    containers_of,
    led_to_containers,
    owner_of,
    published,
    remove_container,
)
from tests.faults.real_host import RealHost, listed
from tests.support.agent.samples import an_id
from tests.support.harness import AgentProcess, Registry, running
from tests.support.private_engine import PrivateEngine, cgroups
from tests.support.private_network import COMMAND_TIMEOUT, run
from tests.support.pushed_image import push_image
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.agent.wire import CAPABILITIES
from tiltyard.contract import Capability

FIRST = 20000
ENDED = (pb.STATE_EXITED, pb.STATE_DEAD)

OCCUPANT = """
import signal, socket, sys
protocol, address, port = sys.argv[1:]
family = socket.AF_INET6 if ":" in address else socket.AF_INET
taken = socket.socket(family, socket.SOCK_STREAM if protocol == "tcp" else socket.SOCK_DGRAM)
if family == socket.AF_INET6:
    taken.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
taken.bind((address, int(port)))
if protocol == "tcp":
    taken.listen()
print(flush=True)
signal.pause()
"""


class Machine:
    """An engine in its own network namespace, with the game's image."""

    def __init__(self, engine: PrivateEngine, image: str = "") -> None:
        """Build the image in the engine unless `image` is given."""
        self.engine = engine
        self.client = docker.DockerClient(f"unix://{engine.socket}")
        self.image = image or self._build()

    def run(self, *command: str, timeout: float = COMMAND_TIMEOUT) -> str:
        """Run a command in the engine's network namespace; return its output."""
        return run(*self.engine.network.inside(*command), timeout=timeout)

    def docker(self, *arguments: str) -> str:
        """Run a command of `docker` on the engine; return its output."""
        return self.run("docker", "--host", f"unix://{self.engine.socket}", *arguments).strip()

    def watched(self, agent: AgentProcess) -> RealHost:
        """The host of an agent on this engine."""
        engine = self.engine
        return RealHost(
            agent, self.client, engine.network.inside, self.traces, lambda: engine.ends
        )

    def flows(self, port: int) -> list[str]:
        """The destination of each UDP flow to a port."""
        listed = self.run("conntrack", "-L", "-p", "udp", "--orig-port-dst", str(port))
        return [
            line.partition("src=")[2].split("src=")[1].split()[0] for line in listed.splitlines()
        ]

    def traces(self) -> dict[str, frozenset[str]]:
        """Kernel objects of containers, by kind."""
        folder = self.engine.folder
        rules = self.run("iptables", "-t", "nat", "-S")
        links = self.run("ip", "-brief", "link").splitlines()
        mounts = Path("/proc/self/mountinfo").read_text().splitlines()
        groups = [path for group in cgroups(folder.name) for path in group.glob("*")]
        return {
            "links": frozenset(line.split()[0].partition("@")[0] for line in links),
            # A network that is made again gets another subnet.
            "rules": frozenset(re.sub(r" 172\.\d+\.0\.0/16", "", rules).splitlines()),
            "mounts": frozenset(line.split()[4] for line in mounts if str(folder) in line),
            "cgroups": frozenset(str(path) for path in groups if path.is_dir()),
        }

    def _build(self) -> str:
        with Registry(self.engine.network.host_address) as registry:
            image = push_image(registry.address, "demo-game").reference
            self.client.images.pull(image)
        return image

    def occupied(self, protocol: str, address: str, port: int) -> AbstractContextManager[None]:
        """Let a process of the machine hold a port."""
        occupant = (sys.executable, "-c", OCCUPANT, protocol, address, str(port))
        return running(self.engine.network.inside(*occupant))


@contextmanager
def a_machine(
    *, data_root: Path | None = None, programs: Path | None = None, **settings: object
) -> Iterator[Machine]:
    """A machine whose engine has these keys of daemon.json, with `_` for `-`."""
    named = {name.replace("_", "-"): value for name, value in settings.items()}
    with PrivateEngine(named, data_root=data_root, programs=programs) as engine:
        machine = Machine(engine)
        with closing(machine.client):
            yield machine


class Agent(AgentProcess):
    """An agent in the engine's network namespace, as on a host, with few ports."""

    def __init__(
        self,
        machine: Machine,
        ports: int,
        *,
        first: int = FIRST,
        wrapper: Sequence[str] | None = None,
        **settings: object,
    ) -> None:
        super().__init__(
            machine.engine.socket,
            port_range=f"{first}-{first + ports - 1}",
            public_address=machine.engine.network.address,
            bind_address="0.0.0.0",
            **{"stop_grace": 10, **settings},
        )
        self.machine = machine
        self.ports = ports
        self.wrapper = machine.engine.network.inside() if wrapper is None else wrapper
        self._watched = machine.watched(self)

    def start(self) -> None:
        super().start()
        self._channel = grpc.insecure_channel(self.address)
        self._stub = agent_pb2_grpc.AgentServiceStub(self._channel)
        eventually(lambda: self._host().reconciled, "records are compared")
        self._watched.note_restarts()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        try:
            if error is None:
                self.assert_survived()
        finally:
            try:
                self.process.stop()  # else it prepares others, which hold ports of the next test
            finally:
                for container in containers_of(self, self.machine.client):
                    remove_container(container)
                self._channel.close()
                super().__exit__(kind, error, trace)

    def assert_survived(self) -> None:
        """Check the invariants after a fault, and again after every session has ended."""
        self._watched.assert_survived()

    def spec(
        self,
        *args: str,
        session_id: str = "",
        pinned: int = 0,
        restart: bool = False,
        ttl: int | None = None,
        protocol: pb.Protocol.ValueType = pb.PROTOCOL_UDP,
        memory_bytes: int = 2**26,
        gpus: int = 0,
        pids: int = 0,
        shm_bytes: int = 0,
        capabilities: Sequence[Capability] = (),
    ) -> pb.SessionSpec:
        """A session of the game with one port."""
        return pb.SessionSpec(
            format=1,
            identity=identity(session_id),
            image=self.machine.image,
            args=args,
            network_mode=pb.NETWORK_MODE_BRIDGE,
            reservation=pb.Resources(nano_cpus=10**7, memory_bytes=2**24, gpus=gpus),
            limits=pb.Resources(nano_cpus=10**9, memory_bytes=memory_bytes, gpus=gpus),
            restart=restart,
            ttl=None if ttl is None else Duration(seconds=ttl),
            ports=[
                pb.PortRequest(container_port=UDP_PORT, protocol=protocol, pinned_host_port=pinned)
            ],
            pids=pids,
            shm_bytes=shm_bytes,
            capabilities=[CAPABILITIES[each] for each in capabilities],
        )

    def play(self, *args: str, internal_id: str = "", **asked: Any) -> pb.Session:
        """Start a session of this `spec`; the game answers with its id."""
        internal_id = internal_id or an_id()
        spec = self.spec(*args, session_id=internal_id, **asked)
        request = pb.StartSessionRequest(internal_id=internal_id, spec=spec)
        return self._stub.StartSession(request, timeout=PATIENCE).session

    def until_plays(self, **asked: Any) -> pb.Session:
        """Start a session as soon as the agent can."""
        started: list[pb.Session] = []

        def starts() -> bool:
            with suppress(grpc.RpcError):
                started.append(self.play(**asked))
            return bool(started)

        eventually(starts, "a session starts")
        return started[0]

    def refusal(self, **asked: Any) -> str:
        """The reason for which a session cannot start."""
        with pytest.raises(grpc.RpcError) as error:
            self.play(**asked)
        return reason(error.value)

    def end(self, session: pb.Session) -> None:
        request = pb.StopSessionRequest(internal_id=session.internal_id)
        self._stub.StopSession(request, timeout=PATIENCE)

    def session(self, session: pb.Session) -> pb.Session:
        """A session as the agent reports it now."""
        listed = self._stub.ListSessions(pb.ListSessionsRequest(page_size=1000), timeout=PATIENCE)
        [found] = [each for each in listed.sessions if each.internal_id == session.internal_id]
        return found

    def until(
        self, session: pb.Session, *states: pb.State.ValueType, patience: float = PATIENCE
    ) -> pb.Session:
        """Wait until a session is in one of these states; return it as it is then."""
        what = f"{session.internal_id} is {' or '.join(map(pb.State.Name, states))}"
        found = self.session(session)

        def reached() -> bool:
            nonlocal found
            found = self.session(session)
            return found.state in states

        eventually(reached, what, patience=patience)
        return found

    @property
    def warnings(self) -> list[str]:
        return list(self._host().host.warnings)

    @property
    def engine_available(self) -> bool:
        return self._host().host.engine_available

    def processes(self) -> dict[str, int]:
        """The first process of each container, by session id."""
        return {who: each.attrs["State"]["Pid"] for who, each in self._owned() if who}

    def containers(self) -> list[Any]:
        """The containers of sessions."""
        return [each for who, each in self._owned() if who]

    def prepared_containers(self) -> list[Any]:
        """The containers that wait for a session."""
        return [each for who, each in self._owned() if not who]

    def container_of(self, session: pb.Session) -> Any:
        """The only container of a session."""
        [found] = [each for who, each in self._owned() if who == session.internal_id]
        return found

    def _owned(self) -> list[tuple[str, Any]]:
        """All containers, each with the internal id of its session or nothing."""
        sessions = self._watched.sessions()
        found = containers_of(self, self.machine.client)
        return [(owner_of(each, sessions), each) for each in found]

    def assert_undisturbed(self, before: dict[str, int], *sessions: pb.Session) -> None:
        """These sessions still have the processes of `before`, and no others have ports."""
        assert self.processes() == before
        for session in sessions:
            found = self.session(session)
            assert found.state == pb.STATE_RUNNING
            assert found.restart_count == 0
        self.assert_ports_agree(*sessions)

    def assert_ports_agree(self, *sessions: pb.Session) -> None:
        """Only these sessions have ports: held, published and forwarded to containers."""
        live = listed(self._stub, live_only=True)
        wanted = {held for session in sessions for held in ports_of(session)}
        assert {held for session in live for held in ports_of(session)} == wanted
        free = 2 * self.ports - len(wanted)
        eventually(lambda: self._free_ports() == free, f"{free} ports are free")
        led = [
            port
            for container in self.containers()
            if container.status == "running"
            for port in published(container)
        ]
        assert sorted(led) == sorted(wanted)
        # Containers may be prepared meanwhile.
        eventually(lambda: self._led_to_sessions() == wanted, f"only {wanted} lead to sessions")
        assert "created" not in {container.status for container in self.containers()}

    def _led_to_sessions(self) -> frozenset[tuple[str, int]]:
        """The ports that the engine forwards to containers which do not wait for a session."""
        led = led_to_containers(self.machine.engine.network.inside)
        return led - {port for each in self.prepared_containers() for port in published(each)}

    def _free_ports(self) -> int:
        host = self._host().host
        return host.free_tcp_ports + host.free_udp_ports

    def _host(self) -> pb.GetHostResponse:
        return self._stub.GetHost(pb.GetHostRequest(), timeout=PATIENCE)


def identity(session_id: str = "") -> pb.Identity:
    return pb.Identity(account="a", session_id=session_id, application="game", tag="v1")


def reason(error: grpc.RpcError) -> str:
    """The reason of a refused call."""
    metadata: Any = error.trailing_metadata()
    return str(dict(metadata)["tiltyard-error-reason"])


def ports_of(session: pb.Session) -> list[tuple[str, int]]:
    names = {pb.PROTOCOL_TCP: "tcp", pb.PROTOCOL_UDP: "udp"}
    return [(names[port.protocol], port.host_port) for port in session.ports]


def port_of(session: pb.Session) -> int:
    [(_, port)] = ports_of(session)
    return port


class Player(SteadyPlayer):
    """A player outside of a machine."""

    def __init__(self, machine: Machine, port: int) -> None:
        network = machine.engine.network
        super().__init__(network.address, port, network.host_address)
