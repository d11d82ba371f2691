"""A host and its control plane as processes, on the real engine."""

import contextlib
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker

from tests.demo_game import Image
from tests.faults.callers import assert_callers_served
from tests.faults.real_host import RealHost, remove_container
from tests.support.api_client import ApiClient
from tests.support.deployment import APPLICATION, PATIENT, REGION, application, enable_tag
from tests.support.harness import AgentProcess, AgentSpec, ControlPlaneProcess, Registry

PATIENCE = 30.0
"""Timeout of waits in seconds."""


@dataclass
class Stack:
    """One host and its control plane."""

    agent: AgentProcess
    control_plane: ControlPlaneProcess
    engine: docker.DockerClient
    image: Image

    @property
    def client(self) -> ApiClient:
        return self.control_plane.client()

    def start(self, **body: object) -> dict[str, Any]:
        body = {"location": REGION, "image": APPLICATION, **body}
        made: dict[str, Any] = self.client.post("/session", body).expect(201).json()
        return made

    def status(self, session_id: str) -> str:
        described = self.client.get(f"/session/{session_id}").expect(200).json()
        return str(described["status"])

    def containers(self) -> dict[str, Any]:
        """Containers of this agent by name."""
        label = f"io.tiltyard.agent={self.agent_id}"
        found = self.engine.containers.list(
            all=True, filters={"label": label}, ignore_removed=True
        )
        return {str(container.name): container for container in found}

    @property
    def agent_id(self) -> str:
        return (self.agent.state_dir / "agent_id").read_text().strip()

    def pids(self) -> dict[str, int]:
        return {
            name: container.attrs["State"]["Pid"] for name, container in self.containers().items()
        }

    def directories(self) -> set[str]:
        return {path.name for path in (self.agent.state_dir / "sessions").iterdir()}

    def record(self, session_id: str | None = None) -> dict[str, Any]:
        """The host's record of a session, by default its only one."""
        paths = (self.agent.state_dir / "sessions").glob("*/record.json")
        records = [json.loads(path.read_text()) for path in paths]
        if session_id is not None:
            records = [
                each for each in records if each["spec"]["identity"]["session_id"] == session_id
            ]
        [record] = records
        return dict(record)


@contextlib.contextmanager
def a_stack(
    docker_engine: Path, registry: Registry, image: Image, **settings: object
) -> Iterator[Stack]:
    """A host with these settings, a control plane with long timeouts, and the demo game.

    Sessions may use the host's network.
    """
    engine = docker.DockerClient(f"unix://{docker_engine}")
    with (
        AgentProcess(
            docker_engine, cpu=16, ram=8192, stop_grace=3, **settings
        ).allow_host_network() as agent,
        ControlPlaneProcess(
            [AgentSpec("host-1", agent.address)],
            {"local": registry.address},
            host_network_pools=["default"],
            **PATIENT,
        ) as control_plane,
    ):
        stack = Stack(agent, control_plane, engine, image)
        stack.client.post("/application", application()).expect(201)
        enable_tag(stack.client, APPLICATION, image.tag)
        host = RealHost(agent, engine)
        try:
            yield stack
            host.assert_survived()
            assert_callers_served(control_plane, host.sessions())
        finally:
            for container in stack.containers().values():
                remove_container(container)
            engine.close()


def eventually(true: Callable[[], bool], what: str, *, patience: float = PATIENCE) -> None:
    """Wait for a condition; fail after a timeout."""
    deadline = time.monotonic() + patience
    while not true():
        assert time.monotonic() < deadline, what
        time.sleep(0.02)
