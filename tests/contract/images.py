"""Images of the contract tests: one static program, pushed to a registry of this run."""

import io
import tarfile
import uuid
from contextlib import closing
from pathlib import Path

import docker

from tests.demo_game import compiled

SOURCE = Path(__file__).with_name("program.c")
PAYLOAD = bytes(range(256)) * 3 + b"\n" + b"x" * (2**20 + 1) + b"\nlast\n"
"""What the program writes at SIGUSR2: every byte value, one long line, and what follows it."""
SAVE = b'{"level": 7}'
"""What stands in /data/save.json of the image."""
_DOCKERFILE = 'FROM scratch\nCOPY / /\nENTRYPOINT ["/program"]\n'


def build(socket: Path, address: str, name: str, line: str = "") -> str:
    """Build an image with one more line in its Dockerfile; its reference by digest.

    The engine keeps it until the registry's traces are removed. It is like none of another run
    that was killed and left its own.
    """
    repository = f"{address}/{name}"
    dockerfile = f"{_DOCKERFILE}{line}\nMAINTAINER {uuid.uuid4()}\n"
    with _client(socket) as client:
        steps = client.build(
            fileobj=io.BytesIO(_context(dockerfile, name)),
            custom_context=True,
            tag=f"{repository}:v1",
            rm=True,
            forcerm=True,
            decode=True,
        )
        _last(steps)
        _last(client.push(repository, tag="v1", stream=True, decode=True))
        image = client.inspect_image(f"{repository}:v1")  # type: ignore[no-untyped-call]
        [digest] = [found for found in image["RepoDigests"] if found.startswith(f"{repository}@")]
    return str(digest)


def forget(socket: Path, reference: str) -> None:
    """Remove an image from the engine; the registry keeps it."""
    with _client(socket) as client:
        client.remove_image(f"{reference.partition('@')[0]}:v1", force=True)


def _client(socket: Path) -> "closing[docker.APIClient]":
    return closing(docker.APIClient(f"unix://{socket}", version="1.41", timeout=60))


def _context(dockerfile: str, name: str) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        for path, data, mode in (
            ("Dockerfile", dockerfile.encode(), 0o644),
            ("program", compiled(SOURCE).read_bytes(), 0o755),
            ("payload", PAYLOAD, 0o644),
            ("data/save.json", SAVE, 0o644),
            ("name", name.encode(), 0o644),
        ):
            member = tarfile.TarInfo(path)
            member.size, member.mode = len(data), mode
            tar.addfile(member, io.BytesIO(data))
    return buffer.getvalue()


def _last(steps: object) -> None:
    for step in steps:  # type: ignore[attr-defined]  # a generator that the stubs do not know
        if "error" in step:
            raise RuntimeError(step["error"])
