"""An enrolled host with a game, ready for a procedure of an operator."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.demo_game import UDP_PORT, Image
from tests.demo_game.player import udp_round_trip
from tests.docker.procedures import Shell
from tests.docker.stack import eventually
from tests.docker.test_enrolled_host import Enrolled, an_enrolled_host
from tests.support.deployment import APPLICATION, REGION, application, enable_tag
from tests.support.harness import Registry


@contextmanager
def an_operated_host(
    docker_engine: Path, registry: Registry, image: Image, **settings: object
) -> Iterator[Enrolled]:
    """Run both programs with mutual TLS; `settings` are the control plane's."""
    with an_enrolled_host(docker_engine, registry, image, **settings) as stack:
        stack.enrol("--region", REGION)
        eventually(stack.is_ready, "the enrolled host is ready")
        make_game(stack)
        yield stack


def an_operators_shell(stack: Enrolled, folder: Path) -> Shell:
    """A shell that maps the page's enrolment address to that of the stack."""
    shell = Shell(folder, stack.agent, stack.control_plane)
    shell.say({"https://control.example:7443": stack.operator.enrol_url})
    return shell


def make_game(stack: Enrolled) -> None:
    stack.client.post("/application", application()).expect(201)
    enable_tag(stack.client, APPLICATION, stack.image.tag)


def play(stack: Enrolled, *session_ids: str) -> dict[str, tuple[str, int]]:
    """Start sessions; return the host and port of each."""
    made = {}
    for session_id in session_ids:
        answer = stack.start(id=session_id)
        [port] = [port["host"] for port in answer["ports"] if port["container"] == UDP_PORT]
        made[session_id] = (answer["host"], port)
    return made


def assert_played(places: dict[str, tuple[str, int]]) -> None:
    for place in places.values():
        udp_round_trip(*place)
