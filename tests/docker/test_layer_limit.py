"""The engine's maximum number of layers, which is the control plane's bound."""

import hashlib
import json
from collections.abc import Iterator
from pathlib import Path

import docker
import pytest
from docker.errors import ImageLoadError

from controlplane.registries.manifests import MAX_LAYERS
from tests.support.agent.tars import tar_of_files

pytestmark = pytest.mark.slow

NAME = "tiltyard-layer-limit:test"


@pytest.fixture
def client(docker_engine: Path) -> Iterator[docker.DockerClient]:
    client = docker.DockerClient(base_url=f"unix://{docker_engine}", timeout=120)
    yield client
    client.close()


def image_of(count: int) -> bytes:
    """Build an archive for `docker load` with this number of layers."""
    layers = {f"{n}.tar": tar_of_files({f"file-{n}": b""}) for n in range(count)}
    diff_ids = [f"sha256:{hashlib.sha256(layer).hexdigest()}" for layer in layers.values()]
    config = {
        "architecture": "amd64",
        "os": "linux",
        "config": {"Cmd": ["/file-0"]},
        "rootfs": {"type": "layers", "diff_ids": diff_ids},
    }
    manifest = [{"Config": "config.json", "RepoTags": [NAME], "Layers": list(layers)}]
    described = {"config.json": config, "manifest.json": manifest}
    return tar_of_files({k: json.dumps(v).encode() for k, v in described.items()} | layers)


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
