from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from agent.errors import (
    ImageInUse,
    InvalidArgument,
    NotAllowed,
    RegistryTimeout,
    RegistryUnavailable,
)
from agent.feed import Feed
from agent.images import CONCURRENT_PULLS, Images, checked_reference
from agent.policy import Policy
from tests.fakes import FakeEngine


def reference(digit: str) -> str:
    return f"127.0.0.1:5000/team/game@sha256:{digit * 64}"


def pulls(engine: FakeEngine) -> int:
    return sum(call == "pull" for call, _ in engine.calls)


@pytest.fixture
def engine() -> FakeEngine:
    engine = FakeEngine()
    engine.registry |= {reference(digit) for digit in "abcdef"}
    return engine


@pytest.fixture
async def images(engine: FakeEngine) -> AsyncIterator[Images]:
    images = Images(engine, Feed())
    yield images
    await images.close()


async def pulled(images: Images, image: str) -> None:
    async for _ in images.pull(image):
        pass


async def test_ten_callers_make_one_pull(engine: FakeEngine, images: Images) -> None:
    engine.hold("pull")
    callers = [asyncio.create_task(pulled(images, reference("a"))) for _ in range(10)]
    await asyncio.sleep(0)
    engine.release("pull")
    await asyncio.gather(*callers)
    assert pulls(engine) == 1
    assert reference("a") in images.here
    await pulled(images, reference("a"))
    assert pulls(engine) == 1


async def test_a_caller_that_leaves_does_not_end_the_pull(
    engine: FakeEngine, images: Images
) -> None:
    engine.hold("pull")
    caller = asyncio.create_task(pulled(images, reference("a")))
    await asyncio.sleep(0)
    caller.cancel()
    await asyncio.gather(caller, return_exceptions=True)
    engine.release("pull")
    await pulled(images, reference("a"))
    assert pulls(engine) == 1


async def test_a_failed_pull_is_told_to_all_and_the_next_is_clean(
    engine: FakeEngine, images: Images
) -> None:
    for error in (RegistryTimeout("x"), RegistryUnavailable("x", "500")):
        engine.fail_next("pull", error)
        answers = await asyncio.gather(
            *(pulled(images, reference("a")) for _ in range(3)), return_exceptions=True
        )
        assert {type(answer) for answer in answers} == {type(error)}
    await pulled(images, reference("a"))


async def test_a_few_pulls_at_a_time(engine: FakeEngine, images: Images) -> None:
    engine.hold("pull")
    callers = [asyncio.create_task(pulled(images, reference(digit))) for digit in "abcdef"]
    for _ in range(50):
        await asyncio.sleep(0)
    assert pulls(engine) == CONCURRENT_PULLS
    engine.release("pull")
    await asyncio.gather(*callers)
    assert len(images.here) == 6


async def test_an_image_that_somebody_removed_is_pulled_again(
    engine: FakeEngine, images: Images
) -> None:
    await pulled(images, reference("a"))
    engine._images.discard(reference("a"))
    await pulled(images, reference("a"))
    assert pulls(engine) == 2


async def test_a_pull_that_takes_too_long_gives_its_slot_back(engine: FakeEngine) -> None:
    images = Images(engine, Feed(), pull_timeout=0.01)
    engine.hold("pull")
    for digit in "abc":
        with pytest.raises(RegistryTimeout):
            await pulled(images, reference(digit))
    engine.release("pull")
    await pulled(images, reference("a"))
    await images.close()


async def test_an_image_is_not_removed_while_it_is_pulled(
    engine: FakeEngine, images: Images
) -> None:
    engine.hold("pull")
    caller = asyncio.create_task(pulled(images, reference("a")))
    await engine.held("pull")
    with pytest.raises(ImageInUse):
        await images.remove(reference("a"))
    engine.release("pull")
    await caller
    await images.remove(reference("a"))
    assert reference("a") not in images.here


async def test_only_registries_of_the_policy_are_asked(engine: FakeEngine) -> None:
    images = Images(engine, Feed(), Policy(allowed_registries=("ghcr.io",)))
    with pytest.raises(NotAllowed):
        await pulled(images, reference("a"))
    assert pulls(engine) == 0


@pytest.mark.parametrize(
    "image",
    [
        "",
        "game",
        "game:latest",
        "host/game@sha256:" + "a" * 63,
        "host/game@sha256:" + "A" * 64,
        "host/../game@sha256:" + "a" * 64,
        "host/Game@sha256:" + "a" * 64,
        "http://host/game@sha256:" + "a" * 64,
        "user@host/game@sha256:" + "a" * 64,
        "host/game@sha256:" + "a" * 64 + "\n",
        "host/" + "g" * 600 + "@sha256:" + "a" * 64,
    ],
)
def test_only_references_by_digest_are_accepted(image: str) -> None:
    with pytest.raises(InvalidArgument):
        checked_reference(image)
