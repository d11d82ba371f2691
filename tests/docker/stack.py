"""A host and its control plane as processes, on the real engine."""

import contextlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, TypeVar

import docker

from agent.state.encoding import SESSIONS
from tests.demo_game import UDP_PORT, Image
from tests.demo_game.player import ANSWERS_WITHIN, udp_round_trip
from tests.faults.callers import assert_callers_served
from tests.faults.containers import containers_of, owner_of, remove_container
from tests.faults.real_host import RealHost
from tests.faults.records import recorded_sessions
from tests.support.api_client import Answer, ApiClient
from tests.support.deployment import APPLICATION, PATIENT, REGION, application, enable_tag
from tests.support.harness import AgentProcess, AgentSpec, ControlPlaneProcess, wait_until

PATIENCE = 30.0  # Timeout of waits in seconds


class Served:
    """What callers of a control plane do."""

    control_plane: ControlPlaneProcess
    region: ClassVar[str] = REGION

    @property
    def client(self) -> ApiClient:
        return self.control_plane.client()

    def try_to_start(self, headers: Mapping[str, str] | None = None, **body: object) -> Answer:
        body = {"location": self.region, "image": APPLICATION, **body}
        return self.client.request("POST", "/session", body=body, headers=headers, timeout=90)

    def start(self, **body: object) -> dict[str, Any]:
        made: dict[str, Any] = self.try_to_start(**body).expect(201).json()  # type: ignore[arg-type]
        return made

    def end(self, session_id: str) -> None:
        self.client.delete_session(session_id).expect(204)

    def status(self, session_id: str) -> str:
        return str(self.client.get(f"/session/{session_id}").expect(200).json()["status"])

    @property
    def patience(self) -> float:
        """Timeout of waits in seconds."""
        return PATIENCE

    def until(self, session_id: str, *statuses: str, patience: float = 0.0) -> None:
        """Wait until a session has one of these statuses."""
        what = f"{session_id} is {' or '.join(statuses)}"
        patience = patience or self.patience
        eventually(lambda: self.status(session_id) in statuses, what, patience=patience)

    def report(self, session_id: str) -> dict[str, Any]:
        """The report of a session that has ended or is about to."""
        self.until(session_id, "exited", "dead")
        return dict(self.client.get(f"/session/{session_id}/report").expect(200).json())

    def make_game(self, name: str = APPLICATION, **changes: object) -> None:
        """Create an application of the demo game, whose tag a host has pulled."""
        asked = application(name, **{"regions": [self.region], **changes})
        self.client.post("/application", asked).expect(201)
        enable_tag(self.client, name, "v1", region=self.region)


@dataclass
class Stack(Served):
    """One host and its control plane."""

    agent: AgentProcess
    control_plane: ControlPlaneProcess
    engine: docker.DockerClient
    image: Image

    def containers(self) -> dict[str, Any]:
        """Containers of this agent's sessions by name."""
        return {str(each.name): each for owner, each in self._owned() if owner}

    def prepared_containers(self) -> list[Any]:
        """The containers that wait for a session."""
        return [each for owner, each in self._owned() if not owner]

    def _owned(self) -> list[tuple[str, Any]]:
        """All containers of this agent, each with the internal id of its session or nothing."""
        sessions = recorded_sessions(self.agent.state_dir)
        found = containers_of(self.agent, self.engine)
        return [(owner_of(each, sessions), each) for each in found]

    def pids(self) -> dict[str, int]:
        return {
            name: container.attrs["State"]["Pid"] for name, container in self.containers().items()
        }

    def restart_agent(self) -> None:
        """Start the killed agent again, without failpoints."""
        self.agent.kill()
        self.agent.settings["failpoint"] = ""
        self.agent.start()

    def record(self, session_id: str | None = None) -> dict[str, Any]:
        """The host's record of a session, by default its only one."""
        [found] = [
            session
            for session in recorded_sessions(self.agent.state_dir)
            if session_id in {None, session.spec.identity.session_id}
        ]
        record: dict[str, Any] = SESSIONS.dump_python(found, mode="json")
        return record


_S = TypeVar("_S", bound=Stack)


NO_LOG_LIMITS = {
    "session_log_lines": 0,
    "session_log_bytes": 0,
    "host_log_lines": 0,
    "host_log_bytes": 0,
}
"""Floods of tests last longer than a host tolerates."""


@contextlib.contextmanager
def a_stack(
    docker_engine: Path,
    image: Image,
    *,
    program: tuple[str, ...] = AgentProcess.program,
    **settings: object,
) -> Iterator[Stack]:
    """A host with these settings, a control plane with long timeouts, and the demo game.

    Sessions may use the host's network; capabilities are up to the node pool. `program` runs the
    agent.
    """
    made = AgentProcess(
        docker_engine, **{"cpu": 16, "ram": 8192, "stop_grace": 3, **NO_LOG_LIMITS, **settings}
    )
    made.program = program
    with (
        made.allow_privileges() as agent,
        ControlPlaneProcess(
            [AgentSpec("host-1", agent.address)],
            {"local": image.address},
            host_network_pools=["default"],
            **PATIENT,
        ) as control_plane,
    ):
        engine = docker.DockerClient(f"unix://{docker_engine}")
        with cleaned(Stack(agent, control_plane, engine, image)) as stack:
            stack.make_game()
            host = RealHost(agent, engine)
            yield stack
            host.assert_survived()
            assert_callers_served(control_plane, host.sessions())


@contextlib.contextmanager
def cleaned(stack: _S) -> Iterator[_S]:
    """Remove the containers at the end."""
    try:
        yield stack
    finally:
        for container in containers_of(stack.agent, stack.engine):
            remove_container(container)
        stack.engine.close()


def udp_port_of(made: Mapping[str, Any]) -> int:
    """The UDP port of a created session."""
    [port] = [each["host"] for each in made["ports"] if each["container"] == UDP_PORT]
    return int(port)


def play_round(made: Mapping[str, Any], patience: float = ANSWERS_WITHIN) -> None:
    """Play a round of the demo game."""
    udp_round_trip(made["host"], udp_port_of(made), patience)


def environment_of(container: Any) -> dict[str, str]:
    """The variables of the program in a container: of its init's only child."""
    pid = container.attrs["State"]["Pid"]
    child = Path(f"/proc/{pid}/task/{pid}/children").read_text().strip()
    entries = Path(f"/proc/{child}/environ").read_text().split("\0")[:-1]
    return dict(entry.split("=", 1) for entry in entries)


def eventually(true: Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    """Wait for a condition; TimeoutError after this number of seconds."""
    wait_until(true, what, patience)
