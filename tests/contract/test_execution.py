"""A program that is handed over is executed as `docker run --init` executes it."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.types import Ulimit

from agent.docker.dockerd import daemon_pid, grantable_nofile
from agent.domain.containers.engine import Start
from agent.domain.errors import ImageCannotRunError
from tests.contract.stages import DockerStage, Images, channel_of, waiting
from tests.demo_game import compiled
from tests.support.agent.tars import Entry, folder
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

pytestmark = [pytest.mark.docker, pytest.mark.registry]

SOURCE = Path(__file__).with_name("mirror.c")
NAMED = b"root:x:0:0::/root:/bin/sh\nplayer:x:1001:1002::/home/player:/bin/sh\n"
GROUPS = b"root:x:0:\nplayer:x:1002:\nmore:x:2000:player\n"
ENV = {"MINE": "a=b\nc", "BOTH": "of the start", "EMPTY": ""}

Push = Any


@dataclass(frozen=True)
class Case:
    """An image's settings, and the arguments of a start."""

    settings: dict[str, object]
    args: tuple[str, ...] = ()


CASES = {
    "from scratch": Case({"Entrypoint": ["/mirror"]}),
    "arguments": Case({"Entrypoint": ["/mirror"], "Cmd": ["-d"]}, ("", "$HOME", "ü\n", "--")),
    "command": Case({"Cmd": ["/mirror", "-d"]}),
    "command of a start": Case({"Cmd": ["/none"]}, ("/mirror", "1")),
    "entry point with command": Case({"Entrypoint": ["/mirror", "1"], "Cmd": ["2"]}),
    "shell form": Case({"Cmd": ["/bin/sh", "-c", "exec /mirror $A"]}),
    "default path": Case({"Entrypoint": ["sh"]}),
    "own path": Case({"Entrypoint": ["tool"], "Env": ["PATH=/none:/opt/tools"]}),
    "path in the folder": Case({"Entrypoint": ["tools/tool"], "WorkingDir": "/opt"}),
    "script without an interpreter": Case({"Entrypoint": ["/script", "1"]}, ("2",)),
    "script": Case({"Entrypoint": ["/script-of-mirror", "1"]}),
    "variables of the image": Case(
        {"Entrypoint": ["/mirror"], "Env": ["BOTH=of the image", "OTHER=1", "PATH=/x"]}
    ),
    "new folder": Case({"Entrypoint": ["/mirror"], "WorkingDir": "/new/folder"}),
    "user by number": Case({"Entrypoint": ["/mirror"], "User": "1001"}),
    "user and group by number": Case({"Entrypoint": ["/mirror"], "User": "5:6"}),
    "unknown number": Case({"Entrypoint": ["/mirror"], "User": "12345"}),
    "user by name": Case({"Entrypoint": ["/mirror"], "User": "player"}),
    "user and group by name": Case({"Entrypoint": ["/mirror"], "User": "player:more"}),
    "missing": Case({"Entrypoint": ["/none"]}),
    "missing in its path": Case({"Entrypoint": ["none"]}),
    "not executable": Case({"Entrypoint": ["/text"]}),
    "not executable by its user": Case({"Entrypoint": ["/of-root"], "User": "5"}),
    "folder": Case({"Entrypoint": ["/opt"]}),
    "missing interpreter": Case({"Entrypoint": ["/lost-script"]}),
}

OFTEN = {
    "arguments",
    "shell form",
    "default path",
    "script without an interpreter",
    "variables of the image",
    "user and group by name",
    "missing in its path",
    "not executable",
}
"""The others are of the same kinds; tests/agent/init has them without an engine, too."""


@pytest.fixture(scope="module")
def push(docker_engine: Path, registry: Registry, images: Images) -> Iterator[Push]:
    """Make images, which are removed with `images`."""
    mirror = compiled(SOURCE).read_bytes()
    entries = [
        Entry(b"mirror", content=mirror, mode=0o755),
        Entry(b"bin/sh", content=mirror, mode=0o755),
        Entry(b"opt/tools/tool", content=mirror, mode=0o755),
        Entry(b"of-root", content=mirror, mode=0o700),
        Entry(b"script", content=b"echo of the shell\n", mode=0o755),
        Entry(b"script-of-mirror", content=b"#!/mirror -x\n", mode=0o755),
        Entry(b"lost-script", content=b"#!/none\n", mode=0o755),
        Entry(b"text", content=b"of the image"),
        Entry(b"etc/passwd", content=NAMED),
        Entry(b"etc/group", content=GROUPS),
        Entry(b"unique", content=uuid.uuid4().bytes),
        folder(b"home/player"),
    ]

    with closing(docker.DockerClient(f"unix://{docker_engine}", timeout=60)) as client:

        def pushed(settings: dict[str, object]) -> str:
            config = {"Entrypoint": None, "User": "", **settings}
            name = "execution"
            image = push_image(registry.address, name, entries=entries, config=config).reference
            client.images.pull(image)
            return image

        yield pushed


def run_by_engine(socket: Path, image: str, args: Sequence[str]) -> tuple[int, list[str]]:
    """Exit code and output of a container with the engine's own init and the same limits."""
    daemon = daemon_pid(str(socket))
    assert daemon is not None
    nofile = grantable_nofile(daemon)
    assert nofile is not None
    with closing(docker.DockerClient(f"unix://{socket}", timeout=60)) as client:
        container = client.containers.run(
            image,
            list(args) or None,
            environment=ENV,
            init=True,
            detach=True,
            cap_drop=["ALL"],
            security_opt=["no-new-privileges"],
            ulimits=[
                Ulimit(name="core", soft=0, hard=0),
                Ulimit(name="nofile", soft=nofile, hard=nofile),
            ],
        )
        try:
            exit_code = container.wait()["StatusCode"]
            return exit_code, container.logs(stderr=False).decode().split("\n")
        finally:
            container.remove(force=True)


async def run_by_hand_over(
    stage: DockerStage, image: str, args: Sequence[str]
) -> tuple[int, list[str]]:
    """Exit code and output of the same program after a hand-over."""
    container = await waiting(stage, image=image)
    program = await stage.engine.program(image, args)
    assert container.process is not None
    refused = False
    try:
        await stage.engine.hand_over(container, channel_of(stage, container), Start(program, ENV))
    except ImageCannotRunError:
        refused = True
    await stage.engine.wait_end(container.process)
    found = await stage.engine.inspect(container.container)
    while found.is_running:
        found = await stage.engine.inspect(container.container)
    async with stage.engine.logs(container.container) as answer:
        log = b"".join([piece.data async for pieces in answer for piece in pieces])
    assert found.exit_code is not None
    assert refused == (found.exit_code in {126, 127})
    return found.exit_code, log.decode().split("\n")


def comparable(lines: Sequence[str]) -> list[str]:
    """What does not differ between two containers of one image.

    The engine's init passes on the signals that the engine itself ignores, and HOME is / where it
    knows none.
    """
    differing = ("variable HOSTNAME=", "status SigIgn:")
    compared = (line for line in lines if not line.startswith(differing))
    return sorted("variable HOME=/tmp" if line == "variable HOME=/" else line for line in compared)


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in OFTEN else pytest.mark.thorough) for name in CASES],
)
async def test_program_finds_what_it_finds_under_the_init_of_the_engine(
    docker_stage: DockerStage, push: Push, name: str
) -> None:
    case = CASES[name]
    image = await asyncio.to_thread(push, case.settings)
    expected = await asyncio.to_thread(run_by_engine, docker_stage.socket, image, case.args)
    found = await run_by_hand_over(docker_stage, image, case.args)
    assert found[0] == expected[0]
    assert comparable(found[1]) == comparable(expected[1])
    ignored = {line for line in found[1] if line.startswith("status SigIgn:")}
    assert ignored <= {"status SigIgn:\t0000000000000000"}
