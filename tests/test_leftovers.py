"""What a killed run of tests has left is ended and removed by the next run, and nothing else."""

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest

from agent.domain.containers.engine import LABEL_AGENT
from tests.demo_game import Image
from tests.support.harness import ROOT
from tests.support.leftovers import REGISTRY_CONFIG, end_leftovers, lock_folder

pytestmark = [pytest.mark.docker, pytest.mark.registry, pytest.mark.root]

RUN = """
import sys
from pathlib import Path
from tests.support.harness import AgentProcess, Registry

with Registry() as registry, AgentProcess(Path(sys.argv[1])) as agent:
    print(registry.folder, agent.folder, registry.process.pid, agent.process.pid, flush=True)
    sys.stdin.read()
"""


class Run:
    """A run of tests with a registry and an agent, to be killed."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        assert process.stdout is not None
        *folders, registry, agent = process.stdout.readline().split()
        self.folders = sorted(map(Path, folders))
        self.parts = [int(registry), int(agent)]

    @property
    def agent_id(self) -> str:
        [path] = [path for folder in self.folders for path in folder.glob("state/agent_id")]
        return path.read_text().strip()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def live_parts(self) -> list[int]:
        return [pid for pid in self.parts if Path(f"/proc/{pid}/exe").exists()]


@contextlib.contextmanager
def a_run(docker_engine: Path, temporary: Path) -> Iterator[Run]:
    """Run a registry and an agent; at the end, nothing is left of them."""
    with subprocess.Popen(
        [sys.executable, "-c", RUN, str(docker_engine)],
        cwd=ROOT,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "TMPDIR": str(temporary)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield Run(process)
        finally:
            process.kill()
            process.wait()
            end_leftovers(docker_engine, temporary)


@pytest.fixture
def temporary() -> Iterator[Path]:
    """A folder of temporary files; the path of a unix socket has at most 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="left-") as folder:
        yield Path(folder)


@pytest.fixture
def client(docker_engine: Path) -> Iterator[docker.DockerClient]:
    with contextlib.closing(docker.DockerClient(f"unix://{docker_engine}", timeout=60)) as client:
        yield client


def test_parts_of_a_killed_run_are_ended_and_removed(
    docker_engine: Path, temporary: Path, client: docker.DockerClient, demo_image: Image
) -> None:
    client.images.pull(demo_image.reference)
    with a_run(docker_engine, temporary) as run:
        container = client.containers.run(
            demo_image.reference, detach=True, labels={LABEL_AGENT: run.agent_id}
        )
        other = client.containers.create(demo_image.reference, labels={LABEL_AGENT: "other"})
        try:
            run.kill()
            assert run.live_parts() == run.parts
            assert sorted(end_leftovers(docker_engine, temporary)) == run.folders
            assert run.live_parts() == []
            assert not any(folder.exists() for folder in run.folders)
            with pytest.raises(docker.errors.NotFound):
                container.reload()
            other.reload()
        finally:
            other.remove(force=True)


def test_a_run_that_goes_on_keeps_its_parts(docker_engine: Path, temporary: Path) -> None:
    with a_run(docker_engine, temporary) as run:
        assert end_leftovers(docker_engine, temporary) == []
        assert run.live_parts() == run.parts
        assert all(folder.exists() for folder in run.folders)


@pytest.mark.parametrize("is_used_again", [False, True])
def test_images_stay_if_another_run_has_a_registry_at_the_same_address(
    docker_engine: Path,
    temporary: Path,
    client: docker.DockerClient,
    demo_image: Image,
    is_used_again: bool,
) -> None:
    client.images.pull(demo_image.reference)
    address = "127.0.0.1:9"
    name = f"{address}/left"
    client.images.get(demo_image.reference).tag(name)
    try:
        folders = ["killed"]
        if is_used_again:
            folders.append("lives")
        for folder in folders:
            (temporary / folder).mkdir()
            config = {"http": {"addr": address}}
            (temporary / folder / REGISTRY_CONFIG).write_text(json.dumps(config))
        lock_folder(temporary / "killed").close()
        with contextlib.ExitStack() as stack:
            if is_used_again:
                stack.enter_context(lock_folder(temporary / "lives"))
            assert end_leftovers(docker_engine, temporary) == [temporary / "killed"]
        assert bool(client.images.list(name)) is is_used_again
    finally:
        with contextlib.suppress(docker.errors.ImageNotFound):
            client.images.remove(name)
