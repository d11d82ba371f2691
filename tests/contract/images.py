"""Images of the contract tests: one static program, pushed to a registry of this run."""

import uuid
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import docker

from tests.demo_game import compiled
from tests.support.agent.tars import Entry
from tests.support.pushed_image import push_image

SOURCE = Path(__file__).with_name("program.c")
PAYLOAD = bytes(range(256)) * 3 + b"\n" + b"x" * (2**20 + 1) + b"\nlast\n"
"""What the program writes at SIGUSR2: every byte value, one long line, and what follows it."""
_MACHINE = 18  # The position in an ELF file of the number of its processor architecture
_RISC_V = 243
SAVE = b'{"level": 7}'  # What stands in /data/save.json of the image


REFUSED = {
    "/none": ("no such file", 127),
    "/text": ("not executable by the image's user", 126),
    "/script": ("its interpreter or dynamic loader is missing", 127),
    "/foreign": ("it is for another processor architecture", 126),
    "/data": ("not executable by the image's user", 126),
}
"""Why programs of the image cannot be executed, and the exit code of their containers."""


def pushed(
    socket: Path, address: str, name: str, *, more: Sequence[Entry] = (), **settings: object
) -> str:
    """Push an image, and pull it into the engine; its reference by digest.

    The engine keeps it until the registry's traces are removed. It is like none of another run
    that was killed and left its own.
    """
    program = compiled(SOURCE).read_bytes()
    entries = [
        Entry(b"program", content=program, mode=0o755),
        Entry(b"text", content=b"no program"),
        Entry(b"script", content=b"#!/none\n", mode=0o755),
        Entry(b"foreign", content=foreign(program), mode=0o755),
        Entry(b"payload", content=PAYLOAD),
        Entry(b"data/save.json", content=SAVE),
        *more,
    ]
    config = {"Entrypoint": ["/program"], "User": "", **settings}
    # Apart from the rest, so that the engine downloads and unpacks that once.
    unique = [uuid.uuid4().bytes]
    image = push_image(address, name, entries=entries, config=config, more=unique).reference
    with _client(socket) as client:
        client.images.pull(image)
    return image


def foreign(program: bytes) -> bytes:
    """A program for a processor that runs no tests."""
    return program[:_MACHINE] + _RISC_V.to_bytes(2, "little") + program[_MACHINE + 2 :]


def forget(socket: Path, reference: str) -> None:
    """Remove an image from the engine; the registry keeps it."""
    with _client(socket) as client:
        client.images.remove(reference, force=True)


def _client(socket: Path) -> "closing[docker.DockerClient]":
    return closing(docker.DockerClient(f"unix://{socket}", timeout=60))
