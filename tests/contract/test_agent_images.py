"""Images of an agent over its unix socket: lists, reports to watchers, pulls and removals."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from agent.domain.containers.engine import Credentials
from tests.contract.test_agent_service import (
    DEADLINE,
    POOL,
    ended,
    pool_request,
    refused,
    start_request,
)
from tests.support.agent.samples import IMAGE
from tests.support.fake_engine import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.images import PullProgress

OTHER_IMAGE = "127.0.0.1:5000/other@sha256:" + "b" * 64


class LoginEngine(FakeEngine):
    """Keeps the logins of pulls."""

    def __init__(self) -> None:
        super().__init__()
        self.logins: list[Credentials | None] = []

    @asynccontextmanager
    async def pull(
        self, image: str, credentials: Credentials | None = None
    ) -> AsyncIterator[AsyncIterator[PullProgress]]:
        self.logins.append(credentials)
        async with super().pull(image, credentials) as steps:
            yield steps


@pytest.fixture
def engine() -> LoginEngine:
    engine = LoginEngine()
    engine.image_store.add(IMAGE)
    return engine


async def listed_images(stub: Any) -> list[str]:
    """What the host says that it has, in as many parts as it takes."""
    parts = stub.ListImages(pb.ListImagesRequest())
    return [image.image async for part in parts for image in part.images]


async def test_very_many_images_are_sent_in_parts(stub: Any, engine: FakeEngine) -> None:
    """40,000 names take more than a message may; those who watch have all of them at the end."""
    watch = stub.Watch(pb.WatchRequest())
    async with asyncio.timeout(DEADLINE):
        known, largest = await reported_images(watch)
        assert known == {IMAGE}
        many = {f"registry.example/{'r' * 60}/{n}@sha256:{n:064x}" for n in range(40_000)}
        for image in many:
            engine.image_store.add(image)
        await stub.RemoveImage(pb.RemoveImageRequest(image=IMAGE))
        while IMAGE in known:  # the host may have looked at its images in between
            known, largest = await reported_images(watch)
        assert known == many
        assert largest < 2**20
        again, largest = await reported_images(stub.Watch(pb.WatchRequest()))
        assert again == many
        assert largest < 2**20
    assert set(await listed_images(stub)) == many
    assert (await stub.GetHost(pb.GetHostRequest())).host.image_count == len(many)


async def reported_images(watch: Any) -> tuple[set[str], int]:
    """The next whole set of images in a stream, and the size of its largest message."""
    found = set[str]()
    largest = 0
    while True:
        message = await watch.read()
        if message.WhichOneof("event") != "images":
            continue
        assert message.images.first == (not found)
        found.update(message.images.images)
        largest = max(largest, message.ByteSize())
        if message.images.last:
            return found, largest


async def test_a_pull_ends_when_the_image_has_come(stub: Any, engine: FakeEngine) -> None:
    engine.image_store.registry.add(OTHER_IMAGE)
    messages = [each async for each in stub.PullImage(pb.PullImageRequest(image=OTHER_IMAGE))]
    assert [each.done for each in messages[:-1]] == [False] * (len(messages) - 1)
    assert messages[-1].done
    assert OTHER_IMAGE in await listed_images(stub)


async def test_a_pull_has_the_login_that_was_sent(stub: Any, engine: LoginEngine) -> None:
    engine.image_store.registry.add(OTHER_IMAGE)
    login = pb.RegistryCredentials(username="studio", password="secret")
    await ended(stub.PullImage(pb.PullImageRequest(image=OTHER_IMAGE, credentials=login)))
    assert engine.logins == [Credentials("studio", "secret")]


async def test_a_pull_without_a_login_is_anonymous(stub: Any, engine: LoginEngine) -> None:
    engine.image_store.registry.add(OTHER_IMAGE)
    await ended(stub.PullImage(pb.PullImageRequest(image=OTHER_IMAGE)))
    assert engine.logins == [None]


async def test_a_pull_of_an_unknown_image_is_refused(stub: Any) -> None:
    request = pb.PullImageRequest(image=OTHER_IMAGE)
    assert await refused(stub.PullImage(request)) == "IMAGE_NOT_FOUND"
    assert OTHER_IMAGE not in await listed_images(stub)


async def test_the_image_of_a_pool_is_not_removed(stub: Any) -> None:
    """Even while the host is drained, so that the pool has no standbys."""
    await stub.SetDrain(pb.SetDrainRequest(revision=1, draining=True))
    await stub.SetWarmPool(pool_request(1))
    request = pb.RemoveImageRequest(image=IMAGE)
    assert await refused(stub.RemoveImage(request)) == "IMAGE_IN_USE"
    await stub.SetWarmPool(pb.SetWarmPoolRequest(pool_id=POOL, revision=2))
    await stub.RemoveImage(request)
    assert IMAGE not in await listed_images(stub)


async def test_an_image_is_removed_once_nothing_uses_it(stub: Any, engine: FakeEngine) -> None:
    request = pb.RemoveImageRequest(image=IMAGE)
    started = (await stub.StartSession(start_request())).session
    assert await refused(stub.RemoveImage(request)) == "IMAGE_IN_USE"
    stop = pb.StopSessionRequest(internal_id=started.internal_id)
    await stub.StopSession(stop)
    # Its container is kept, for its files.
    assert await refused(stub.RemoveImage(request)) == "IMAGE_IN_USE"
    assert IMAGE in await engine.images()
    stop.discard = True
    await stub.StopSession(stop)
    for _ in range(2):
        await stub.RemoveImage(request)
        assert IMAGE not in await listed_images(stub)
    assert await refused(stub.StartSession(start_request())) == "IMAGE_MISSING"
    request.image = "game:latest"
    assert await refused(stub.RemoveImage(request)) == "INVALID_ARGUMENT"
