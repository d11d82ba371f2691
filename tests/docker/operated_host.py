"""Both programs as processes with mutual TLS, set up by the real commands of an operator."""

import os
import subprocess
import sys
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

from agent.rpc.identity import FILE, Identity
from tests.demo_game import Image
from tests.docker.stack import Stack, cleaned, eventually, play_round
from tests.support.deployment import REGION
from tests.support.harness import ROOT, AgentProcess, ControlPlaneProcess, free_port

_TIMEOUT = 60.0  # Timeout of a command in seconds


class Operator:
    """An operator of a control plane that enrols hosts at `enrol_url`."""

    def __init__(self, control_plane: ControlPlaneProcess, enrol_url: str) -> None:
        self._control_plane = control_plane
        self.enrol_url = enrol_url

    def run(self, *arguments: str) -> str:
        """Run a command of `tiltyard-controlplane`; return its output."""
        token_file = self._control_plane.folder / "operator.token"
        token_file.write_text(self._control_plane.operator_token)
        options = ("--url", self._control_plane.base_url, "--token-file", str(token_file))
        return run([sys.executable, "-m", "controlplane", *arguments, *options])

    def enrol(self, agent: AgentProcess, name: str, *options: str) -> str:
        """Enrol a host by this name, also again; return the output."""
        token = self.run("agent", "token", *options)
        program = [*agent.wrapper, sys.executable, "-m", "agent", "enrol", self.enrol_url]
        return run([*program, "--config", str(agent.config), "--name", name], typed=token)

    def shown(self, name: str) -> dict[str, Any]:
        """An agent as operators see it."""
        answer = self._control_plane.operator.get(f"/operator/agent/{name}").expect(200)
        return dict(answer.json())

    def is_ready(self, name: str) -> bool:
        return bool(self.shown(name)["state"] == "ready")


def identity_of(agent: AgentProcess) -> Identity:
    """The certificate and key with which an agent has enrolled."""
    found = Identity.read(agent.state_dir / FILE)
    assert found is not None
    return found


def run(
    command: list[str],
    *,
    typed: str = "",
    folder: Path = ROOT,
    environment: Mapping[str, str] | None = None,
    codes: Collection[int] = (0,),
) -> str:
    """Run a command that must end with one of these codes; return its output."""
    done = subprocess.run(
        command,
        cwd=folder,
        env=environment or {**os.environ, "PYTHONPATH": str(ROOT)},
        input=typed,
        capture_output=True,
        text=True,
        timeout=_TIMEOUT,
        check=False,
    )
    assert done.returncode in codes, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout


class Enrolled(Stack):
    """One enrolled host and its control plane."""

    operator: Operator

    def enrol(self, *options: str) -> str:
        return self.operator.enrol(self.agent, "host-1", *options)

    def is_ready(self) -> bool:
        return self.operator.is_ready("host-1")


@contextmanager
def an_enrolled_host(docker_engine: Path, image: Image, **settings: object) -> Iterator[Enrolled]:
    """A host that can enrol with a control plane of these settings."""
    listen = f"127.0.0.1:{free_port()}"
    with (
        AgentProcess(
            docker_engine, cpu=16, ram=8192, stop_grace=1, rpc_listen=f"127.0.0.1:{free_port()}"
        ) as agent,
        ControlPlaneProcess(
            [], {"local": image.address}, enrol_listen=listen, **settings
        ) as plane,
    ):
        engine = docker.DockerClient(f"unix://{docker_engine}")
        with cleaned(Enrolled(agent, plane, engine, image)) as stack:
            stack.operator = Operator(plane, f"https://{listen}")
            yield stack


@contextmanager
def an_operated_host(docker_engine: Path, image: Image, **settings: object) -> Iterator[Enrolled]:
    """Run both programs with mutual TLS; `settings` are the control plane's."""
    with an_enrolled_host(docker_engine, image, **settings) as stack:
        stack.enrol("--region", REGION)
        eventually(stack.is_ready, "the enrolled host is ready")
        stack.make_game()
        yield stack


def play(stack: Enrolled, *session_ids: str) -> dict[str, dict[str, Any]]:
    """Start sessions; return the answers by id."""
    return {session_id: stack.start(id=session_id) for session_id in session_ids}


def assert_played(made: dict[str, dict[str, Any]]) -> None:
    for each in made.values():
        play_round(each)
