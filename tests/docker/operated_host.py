"""Both programs as processes with mutual TLS, set up as by an operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import docker

from tests.demo_game import Image
from tests.docker.operator_commands import Operator
from tests.docker.stack import Stack, cleaned, eventually, play_round
from tests.support.deployment import REGION
from tests.support.harness import AgentProcess, ControlPlaneProcess, free_port


class Enrolled(Stack):
    """One enrolled host and its control plane."""

    operator: Operator

    def operate(self, *arguments: str) -> str:
        return self.operator.run(*arguments)

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
