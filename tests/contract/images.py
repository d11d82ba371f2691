"""Images of the contract tests: one static program, pushed to a registry of this run."""

import uuid
from contextlib import closing
from pathlib import Path

import docker

from tests import demo_game
from tests.support.agent.tars import Entry

SOURCE = Path(__file__).with_name("program.c")
PAYLOAD = bytes(range(256)) * 3 + b"\n" + b"x" * (2**20 + 1) + b"\nlast\n"
"""What the program writes at SIGUSR2: every byte value, one long line, and what follows it."""
SAVE = b'{"level": 7}'  # What stands in /data/save.json of the image
_DOCKERFILE = 'FROM scratch\nCOPY / /\nENTRYPOINT ["/program"]\n'


def build(socket: Path, address: str, name: str, line: str = "") -> str:
    """Build an image with one more line in its Dockerfile; its reference by digest.

    The engine keeps it until the registry's traces are removed. It is like none of another run
    that was killed and left its own.
    """
    dockerfile = f"{_DOCKERFILE}{line}\nMAINTAINER {uuid.uuid4()}\n"
    context = [
        Entry(b"Dockerfile", content=dockerfile.encode()),
        Entry(b"program", content=demo_game.compiled(SOURCE).read_bytes(), mode=0o755),
        Entry(b"payload", content=PAYLOAD),
        Entry(b"data/save.json", content=SAVE),
        Entry(b"name", content=name.encode()),
    ]
    with _client(socket) as client:
        demo_game.build(client, f"{address}/{name}:v1", context)
        return f"{address}/{name}@{demo_game.push(client, address, name, 'v1')}"


def forget(socket: Path, reference: str) -> None:
    """Remove an image from the engine; the registry keeps it."""
    with _client(socket) as client:
        client.images.remove(f"{reference.partition('@')[0]}:v1", force=True)


def _client(socket: Path) -> "closing[docker.DockerClient]":
    return closing(docker.DockerClient(f"unix://{socket}", timeout=60))
