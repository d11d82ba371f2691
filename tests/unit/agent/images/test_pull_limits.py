"""Pulls that are too slow, or that fill the disk, end."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from agent.changes.feed import Feed
from agent.domain import errors
from agent.domain.containers.engine import Credentials
from agent.images.images import Images
from agent.images.pace import LEAST_BYTES, WINDOW_SECONDS
from agent.kernel.disks import Disk, Disks
from tests.support.agent.hosts import pulled
from tests.support.fake_clock import FakeClock, until_idle
from tests.support.fake_engine import FakeEngine
from tests.support.tasks import let_go
from tests.unit.agent.images.test_images import SIX
from tiltyard.images import PullProgress


@pytest.fixture
def engine(clock: FakeClock) -> FakeEngine:
    engine = FakeEngine(clock)
    engine.image_store.registry |= set(SIX)
    return engine


class SlowRegistry(FakeEngine):
    """An engine whose registry sends `rate` bytes a second of a layer without an end."""

    clock: FakeClock
    rate: float = 0
    downloading = 1

    @asynccontextmanager
    async def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AsyncIterator[AsyncIterator[PullProgress]]:
        yield self._steps(image)

    async def _steps(self, image: str) -> AsyncGenerator[PullProgress]:
        received = 0.0
        for _ in range(100):
            await self.clock.sleep(5)
            received += 5 * self.rate
            yield PullProgress(1, 0, int(received), downloading=self.downloading)
        self.image_store.add(image)


@pytest.fixture
async def slow(clock: FakeClock) -> AsyncIterator[tuple[SlowRegistry, Images]]:
    engine = SlowRegistry(clock)
    engine.clock = clock
    images = Images(engine, Feed(), clock=clock)
    yield engine, images
    await images.close()


async def test_pull_from_a_registry_that_trickles_ends_and_gives_its_slot_to_the_next(
    slow: tuple[SlowRegistry, Images],
) -> None:
    engine, images = slow
    engine.rate = LEAST_BYTES / WINDOW_SECONDS / 2
    callers = [asyncio.create_task(pulled(images, image)) for image in SIX[:3]]
    await engine.clock.advance(WINDOW_SECONDS - 5)
    assert not any(caller.done() for caller in callers)
    assert images.pulls[SIX[2]].waiting
    await engine.clock.advance(15)
    for caller in callers[:2]:
        with pytest.raises(errors.RegistryTimeoutError, match="sent less than 8 MiB in 60 s"):
            await caller
    assert not images.pulls[SIX[2]].waiting
    await let_go(callers[2])


class Filled:
    """The disk of the engine, which reserves 100 bytes."""

    def __init__(self) -> None:
        self.free = 1000
        self.disks = Disks(100, Path("/state"), measure=self._measure)
        self.disks.watch("/docker")
        self.disks.look()

    def _measure(self, path: Path, reserve: int) -> Disk:
        return Disk(path, self.free, reserve)

    async def look(self) -> None:
        self.disks.look()


async def test_no_pull_begins_while_the_disk_is_low(engine: FakeEngine) -> None:
    disk = Filled()
    images = Images(engine, Feed(), disks=disk.disks, measure=disk.look)
    disk.free = 199
    await disk.look()
    with pytest.raises(errors.DiskFullError, match="too little room for images"):
        await pulled(images, SIX[0])
    assert engine.count("pull") == 0
    disk.free = 200
    await disk.look()
    await pulled(images, SIX[0])


async def test_pulls_reserve_what_their_images_may_take(engine: FakeEngine) -> None:
    disk = Filled()  # 800 bytes for images
    images = Images(engine, Feed(), disks=disk.disks, measure=disk.look)
    engine.hold("pull")
    first = asyncio.create_task(pulled(images, SIX[0], expected_bytes=500))
    await until_idle()
    with pytest.raises(errors.DiskFullError, match="too little room for images: pulls may take"):
        await pulled(images, SIX[1], expected_bytes=301)
    second = asyncio.create_task(pulled(images, SIX[2], expected_bytes=300))
    await until_idle()
    assert engine.count("pull") == 2
    engine.release("pull")
    await first
    await second
    await pulled(images, SIX[1], expected_bytes=800)


async def test_pull_that_fills_the_disk_is_ended(clock: FakeClock) -> None:
    engine = SlowRegistry(clock)
    engine.clock = clock
    engine.downloading = 0
    disk = Filled()
    images = Images(engine, Feed(), clock=clock, disks=disk.disks)
    caller = asyncio.create_task(pulled(images, SIX[0]))
    await clock.advance(20)
    disk.free = 150
    disk.disks.look()
    await clock.advance(5)
    with pytest.raises(errors.DiskFullError, match="too little room for images"):
        await caller
    assert not images.pulls


async def test_disk_is_measured_again_once_an_image_is_on_the_host(engine: FakeEngine) -> None:
    disk = Filled()
    images = Images(engine, Feed(), disks=disk.disks, measure=disk.look)
    assert disk.disks.free_image_bytes == 800
    disk.free = 700
    await pulled(images, SIX[0])
    assert disk.disks.free_image_bytes == 500


@pytest.mark.parametrize(
    ("rate", "downloading"),
    [
        (1.5 * LEAST_BYTES / WINDOW_SECONDS, 1),
        (0, 0),
    ],
    ids=["slow registry", "busy engine"],
)
async def test_pull_that_the_registry_does_not_delay_is_completed(
    slow: tuple[SlowRegistry, Images], rate: float, downloading: int
) -> None:
    engine, images = slow
    engine.rate = rate
    engine.downloading = downloading
    caller = asyncio.create_task(pulled(images, SIX[0]))
    await engine.clock.advance(600)
    await caller
    assert SIX[0] in images.here
