"""An agent's pulls on an engine, and the resulting data on its disk."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager, closing, suppress
from dataclasses import dataclass
from pathlib import Path

import docker

from agent.changes.feed import Feed
from agent.docker.engine import DockerEngine
from agent.domain.engine import Credentials
from agent.domain.errors import RegistryUnavailableError
from agent.images.images import Images
from tests.support.chaos_registry import ChaosRegistry
from tests.support.controlplane.system import eventually_equals
from tests.support.private_engine import PrivateEngine
from tests.support.pushed_image import PushedImage

PATIENCE = 30


@dataclass
class Puller:
    """Pulls images and measures the engine's disk."""

    engine: PrivateEngine
    docker: DockerEngine

    def images(self, timeout: float = PATIENCE) -> Images:
        return Images(self.docker, Feed(), pull_timeout=timeout)

    def kept(self) -> set[Path]:
        """Complete and partial layers and images."""
        places = (
            "tmp",
            "overlay2",
            "image/overlay2/layerdb/*",
            "image/overlay2/imagedb/content/*",
        )
        return {found for place in places for found in self.engine.data_root.glob(f"{place}/*")}

    async def until_kept(self, wanted: set[Path]) -> None:
        """Wait until the disk holds this: the engine cleans up after its answer."""

        async def differences() -> list[str]:
            return sorted(map(str, self.kept() ^ wanted))

        await eventually_equals(differences, [])

    def run(self, image: PushedImage) -> None:
        """Run an image, and remove the container."""
        url = f"unix://{self.engine.socket}"
        with closing(docker.DockerClient(url, timeout=PATIENCE)) as client:
            made = client.containers.create(image.reference, ["--exit-after", "0.1"])
            made.start()
            assert made.wait(timeout=PATIENCE)["StatusCode"] == 0
            made.remove()


@asynccontextmanager
async def puller(engine: PrivateEngine) -> AsyncIterator[Puller]:
    running = DockerEngine(str(engine.socket))
    try:
        yield Puller(engine, running)
    finally:
        await running.close()


async def pull(
    images: Images, image: PushedImage, credentials: Credentials | None = None
) -> list[bool]:
    """Pull an image; return for each step whether it waited."""
    async with aclosing(images.pull(image.reference, credentials)) as steps:
        return [progress.waiting async for progress in steps]


async def pull_until_done(images: Images, image: PushedImage) -> None:
    """Retry a pull until it succeeds, like a control plane."""
    async with asyncio.timeout(PATIENCE):
        while image.reference not in images.here:
            with suppress(RegistryUnavailableError):
                await pull(images, image)


def pushed(
    chaos: ChaosRegistry, name: str, *, layers: int = 1, size: int = 100_000
) -> PushedImage:
    """Push an image with unique layers."""
    more = [os.urandom(size) for _ in range(layers)]
    return chaos.push(f"f43/{name}", more=more)
