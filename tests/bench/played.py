"""A session of the demo game, accessed over HTTP and with the `docker` command."""

import subprocess
from dataclasses import dataclass
from typing import Any

import docker

from tests.faults.containers import containers_of
from tests.support.api_client import ApiClient
from tests.support.deployment import APPLICATION, REGION, Deployment
from tests.support.harness import wait_until

_BLOCK = 2**20
_TIMEOUT = 120


@dataclass(frozen=True)
class Played:
    """A session and its container."""

    id: str
    container: Any

    def wait_for_line(self, end: str) -> None:
        """Wait until the newest line of its log ends with `end`."""
        wait_until(
            lambda: self.container.logs(tail=1).endswith(f"{end}\n".encode()),
            f"the game did not write {end!r}",
            _TIMEOUT,
            poll=0.05,
        )


def play(deployment: Deployment, *args: str) -> Played:
    """Start a session of the demo game; no other may start at the same time."""
    body = {"location": REGION, "image": APPLICATION, "args": args}
    made = deployment.client.post("/session", body).expect(201).json()
    engine = docker.DockerClient(f"unix://{deployment.engine.socket}", timeout=_TIMEOUT)
    newest, *_ = containers_of(deployment.agent, engine)
    return Played(made["id"], newest)


def download(client: ApiClient, path: str, /, **query: Any) -> int:
    """Read and discard a response; return its length in bytes."""
    count = 0
    block = bytearray(_BLOCK)
    with client.stream(path, timeout=_TIMEOUT, **query) as answer:
        while read := answer.readinto(block):
            count += read
    return count


def to_nowhere(command: str) -> None:
    """Run a shell pipeline with its output to /dev/null."""
    subprocess.run(
        ["bash", "-c", f"set -o pipefail; {{ {command}; }} >/dev/null 2>&1"],
        check=True,
        timeout=_TIMEOUT,
    )


def output_bytes(command: str) -> int:
    """Run a shell pipeline and count the bytes of its output."""
    pipeline = f"set -o pipefail; {{ {command}; }} 2>/dev/null | wc -c"
    counted = subprocess.run(
        ["bash", "-c", pipeline], check=True, timeout=_TIMEOUT, stdout=subprocess.PIPE
    )
    return int(counted.stdout)
