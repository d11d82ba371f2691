"""An enrolled host with a game, ready for a procedure of an operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.demo_game import Image
from tests.docker.procedures import Shell
from tests.docker.stack import eventually, play_round
from tests.docker.test_enrolled_host import Enrolled, an_enrolled_host
from tests.support.deployment import REGION
from tests.support.harness import Registry


@contextmanager
def an_operated_host(
    docker_engine: Path, registry: Registry, image: Image, **settings: object
) -> Iterator[Enrolled]:
    """Run both programs with mutual TLS; `settings` are the control plane's."""
    with an_enrolled_host(docker_engine, registry, image, **settings) as stack:
        stack.enrol("--region", REGION)
        eventually(stack.is_ready, "the enrolled host is ready")
        stack.make_game()
        yield stack


def an_operators_shell(stack: Enrolled, folder: Path) -> Shell:
    """A shell that maps the page's enrolment address to that of the stack."""
    shell = Shell(folder, stack.agent, stack.control_plane)
    shell.say({"https://control.example:7443": stack.operator.enrol_url})
    return shell


def play(stack: Enrolled, *session_ids: str) -> dict[str, dict[str, Any]]:
    """Start sessions; return the answers by id."""
    return {session_id: stack.start(id=session_id) for session_id in session_ids}


def assert_played(made: dict[str, dict[str, Any]]) -> None:
    for each in made.values():
        play_round(each)
