"""Images of an agent over its unix socket: lists, reports to watchers and removals."""

import asyncio
from typing import Any

from tests.contract.test_agent_service import DEADLINE, refused, start_request
from tests.support.agent.samples import IMAGE
from tests.support.fakes import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb


async def listed_images(stub: Any) -> list[str]:
    """What the host says that it has, in as many parts as it takes."""
    parts = stub.ListImages(pb.ListImagesRequest())
    return [image.image async for part in parts for image in part.images]


async def test_very_many_images_are_sent_in_parts(stub: Any, engine: FakeEngine) -> None:
    """40,000 names take more than a message may; those who watch have all of them at the end."""
    watch = stub.Watch(pb.WatchRequest())
    async with asyncio.timeout(DEADLINE):
        known, _ = await reported_images(watch)
        assert known == {IMAGE}
        many = {f"registry.example/{'r' * 60}/{n}@sha256:{n:064x}" for n in range(40_000)}
        for image in many:
            engine.add_image(image)
        await stub.RemoveImage(pb.RemoveImageRequest(image=IMAGE))
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
