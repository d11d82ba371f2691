"""Both programs as processes that meet by mutual TLS alone, set up as an operator does it."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import docker
import pytest

from tests.demo_game import UDP_PORT, Image
from tests.demo_game.player import udp_round_trip
from tests.deployment import APPLICATION, REGION, application, enable_tag
from tests.docker.stack import Stack, eventually
from tests.harness import ROOT, AgentProcess, ControlPlaneProcess, Registry, free_port

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.slow]


def run(program: str, *arguments: str, typed: str = "") -> str:
    """Run a command to its end; what it printed."""
    done = subprocess.run(
        [sys.executable, "-m", program, *arguments],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": f"{ROOT}:{ROOT / 'protos'}"},
        input=typed,
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


class Enrolled(Stack):
    """One host that was enrolled, and its control plane."""

    enrol_url: str
    token_file: Path

    def operate(self, *arguments: str) -> str:
        options = ("--url", self.control_plane.base_url, "--token-file", str(self.token_file))
        return run("controlplane", *arguments, *options)

    def enrol(self, *options: str) -> str:
        token = self.operate("agent", "token", *options)
        more = ("--config", str(self.agent.config), "--name", "host-1")
        return run("agent", "enrol", self.enrol_url, *more, typed=token)

    def is_ready(self) -> bool:
        return "STATE              ready" in self.operate("agent", "show", "host-1")


@contextmanager
def an_enrolled_host(docker_engine: Path, registry: Registry, image: Image) -> Iterator[Enrolled]:
    listen = f"127.0.0.1:{free_port()}"
    engine = docker.DockerClient(f"unix://{docker_engine}")
    with (
        AgentProcess(
            docker_engine,
            cpu=16,
            ram=8192,
            stop_grace=1,
            rpc_listen=f"127.0.0.1:{free_port()}",
        ) as agent,
        ControlPlaneProcess([], {"local": registry.address}, enrol_listen=listen) as plane,
    ):
        stack = Enrolled(agent, plane, engine, image)
        stack.enrol_url = f"https://{listen}"
        stack.token_file = plane.folder / "operator.token"
        stack.token_file.write_text(plane.operator_token)
        try:
            yield stack
        finally:
            for container in stack.containers().values():
                container.remove(force=True)
            engine.close()


def test_a_host_joins_plays_and_is_revoked(
    docker_engine: Path, registry: Registry, demo_image: Image
) -> None:
    with an_enrolled_host(docker_engine, registry, demo_image) as stack:
        assert "enrolled as host-1 in region local" in stack.enrol("--region", REGION)
        eventually(stack.is_ready, "the enrolled host is heard")
        stack.client.post("/application", application()).expect(201)
        enable_tag(stack.client, APPLICATION, demo_image.tag)
        made = stack.start(id="match")
        [port] = [port["host"] for port in made["ports"] if port["container"] == UDP_PORT]
        udp_round_trip(made["host"], port)

        for program in (stack.control_plane, stack.agent):
            program.restart()
            eventually(stack.is_ready, "the host is heard again")
        udp_round_trip(made["host"], port)
        assert stack.status("match") == "running"

        assert "host-1" in stack.enrol("--agent", "host-1")
        eventually(stack.is_ready, "the host is heard by its new name")
        assert stack.status("match") == "running"

        stack.operate("agent", "revoke", "host-1", "--yes")
        assert stack.status("match") == "dead"
        assert "revoked" in stack.operate("agent", "list")
        refused = stack.client.post("/session", {"location": REGION, "image": APPLICATION})
        assert refused.status in {404, 420}

        for secret in (
            stack.agent.state_dir / "identity.pem",
            stack.control_plane.state_dir / "authority.pem",
        ):
            assert stat.S_IMODE(secret.stat().st_mode) == 0o600
        logs = stack.agent.process.log.read_text() + stack.control_plane.process.log.read_text()
        assert "PRIVATE KEY" not in logs
        assert "Traceback" not in logs
