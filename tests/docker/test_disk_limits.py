"""Limits of the engine and of sessions: a session ends, and no other, if its disk is too small."""

import asyncio
import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import ImageLoadError

from agent.docker.engine import DockerEngine
from controlplane.registries.manifests import MAX_LAYERS
from tests.demo_game import Image
from tests.docker.machine import Agent, a_machine
from tests.docker.stack import Stack, a_stack
from tests.support.agent.tars import tar_of_files
from tests.support.deployment import APPLICATION
from tests.support.private_engine import BTRFS, small_disk

MEBIBYTE = 2**20
LIMIT = 64  # Disk limit of a session in MiB
PATIENCE = 120.0  # Timeout in seconds to measure a container on a busy machine


@pytest.fixture(scope="module")
def stack(docker_engine: Path, demo_image: Image) -> Iterator[Stack]:
    with a_stack(docker_engine, demo_image, session_disk=10 * LIMIT) as made:
        limits = {"cpu": 1, "ram": 64, "disk": LIMIT}
        made.client.put(f"/application/{APPLICATION}", {"limits": limits}).expect(204)
        yield made


@pytest.fixture
def client(docker_engine: Path) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=f"unix://{docker_engine}", timeout=120)
    yield client
    client.close()


def write_as(pid: int, path: str, size: int) -> None:
    """Write a file into the container of a process."""
    with Path(f"/proc/{pid}/root{path}").open("wb") as file:
        file.writelines(os.urandom(MEBIBYTE) for _ in range(size // MEBIBYTE))


def pid_of(stack: Stack, session_id: str) -> int:
    return int(stack.record(session_id)["process"]["pid"])


@pytest.mark.slow
def test_session_beyond_its_disk_limit_ends_and_its_neighbour_continues(stack: Stack) -> None:
    large = stack.start(id="large", restart=True)["id"]
    small = stack.start(id="small", restart=True)["id"]
    before = pid_of(stack, small)
    write_as(pid_of(stack, small), "/file", LIMIT // 2 * MEBIBYTE)
    write_as(pid_of(stack, large), "/score", MEBIBYTE)
    write_as(pid_of(stack, large), "/file", 2 * LIMIT * MEBIBYTE)
    stack.until(large, "exited", patience=PATIENCE)
    report = stack.report(large)
    assert report["end_reason"] == "disk"
    assert "disk limit" in report["detail"]
    archive = stack.client.get("/artifacts", session=large, path="/score").expect(200).body
    with tarfile.open(fileobj=io.BytesIO(archive)) as files:
        assert files.getmember("score").size == MEBIBYTE
    assert report["restartCount"] == 0
    assert report["failedRuns"] == []
    assert [each["status"] for each in report["timeline"]][-2:] == ["shuttingdown", "exited"]
    assert stack.status(small) == "running"
    assert pid_of(stack, small) == before
    stack.end(small)


def test_writes_to_image_volumes_count(
    docker_engine: Path, client: docker.DockerClient, demo_image: Image
) -> None:
    client.images.pull(demo_image.reference)
    container = client.containers.run(demo_image.reference, detach=True, volumes=["/data"])
    other = client.containers.run(demo_image.reference, detach=True, volumes=["/data"])
    try:
        for each, size in ((container, 3), (other, 5)):
            each.reload()
            write_as(each.attrs["State"]["Pid"], "/data/file", size * MEBIBYTE)

        async def measured() -> int:
            engine = DockerEngine(str(docker_engine))
            try:
                return await engine.written_bytes(str(container.id))
            finally:
                await engine.close()

        assert 3 * MEBIBYTE <= asyncio.run(measured()) < 4 * MEBIBYTE
    finally:
        for each in (container, other):
            each.remove(force=True, v=True)


@pytest.mark.slow
def test_sets_layer_quota_if_the_engine_supports_it(tmp_path: Path) -> None:
    with (
        small_disk(tmp_path, 1024, BTRFS) as disk,
        a_machine(data_root=disk, storage_driver="btrfs") as machine,
        Agent(machine, 5, session_disk=LIMIT) as agent,
    ):
        session = agent.session(agent.play())
        write_as(session.pid, "/first", LIMIT * MEBIBYTE)
        with pytest.raises(OSError, match="quota"):
            write_as(session.pid, "/second", 2 * LIMIT * MEBIBYTE)


NAME = "tiltyard-layer-limit:test"


def image_of(count: int) -> bytes:
    """Build an archive for `docker load` with this number of layers."""
    layers = {f"{number}.tar": tar_of_files({f"file-{number}": b""}) for number in range(count)}
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers.values()]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/file-0"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": list(layers)}]
    described = {
        "config.json": json.dumps(config).encode(),
        "manifest.json": json.dumps(manifest).encode(),
    }
    return tar_of_files(described | layers)


@pytest.mark.slow
@pytest.mark.thorough
def test_the_engine_mounts_as_many_layers_as_we_allow_and_no_more(
    client: docker.DockerClient,
) -> None:
    with pytest.raises(ImageLoadError, match="max depth exceeded"):
        client.images.load(image_of(MAX_LAYERS + 1))
    client.images.load(image_of(MAX_LAYERS))
    try:
        client.containers.create(NAME).remove()
    finally:
        client.images.remove(NAME)
