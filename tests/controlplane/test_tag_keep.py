"""Old tags are withdrawn, and their images removed from hosts once unused."""

import pytest

from tests.support.controlplane.system import System, assert_error, eventually, token_id

pytestmark = [pytest.mark.system(agents=2), pytest.mark.usefixtures("quick_pulls")]


async def _exists(system: System, tag: str, image: str = "game") -> bool:
    return bool((await system.read(f"/tag/local/{image}/{tag}"))["exists"])


async def _gone(system: System, image: str) -> None:
    await eventually(lambda: not any(image in agent.images for agent in system.agents))


async def test_only_the_newest_tags_stay(system: System) -> None:
    first = await system.make_application(tagKeep=2)
    second = await system.enable("v2")
    third = await system.enable("v3")
    await _gone(system, first)
    for agent in system.agents:
        assert set(agent.images) == {second, third}
    assert [await _exists(system, tag) for tag in ("v1", "v2", "v3")] == [False, True, True]
    assert_error(await system.start(version="v1"), 404)
    assert (await system.start(version="v2")).status == 201
    events = await system.events("tag.withdrawn", "object, actor")
    assert events == [("game:v1", token_id(system.tokens["alice"]))]


async def test_a_tag_that_is_pulled_forward_outlives_others(system: System) -> None:
    first = await system.make_application(tagKeep=2)
    second = await system.enable("v2")
    assert await system.enable("v1") == first
    third = await system.enable("v3")
    await _gone(system, second)
    assert set(system.agent.images) == {first, third}
    # A withdrawn tag can be enabled and pulled again.
    assert await system.enable("v2") == second
    assert await _exists(system, "v2")
    await _gone(system, first)


async def test_smaller_tag_keep_withdraws_at_once_and_leaves_other_images(system: System) -> None:
    foreign = "ghcr.io/somebody/else@sha256:" + "e" * 64
    system.agent.add_image(foreign)
    first = await system.make_application(tagKeep=3)
    second = await system.enable("v2")
    (await system.edit(tagKeep=1)).expect(204)
    await _gone(system, first)
    assert set(system.agent.images) == {foreign, second}
    assert foreign not in system.agent.removal_asked
    assert not await _exists(system, "v1")


async def test_an_image_in_use_goes_once_it_is_not(system: System) -> None:
    first = await system.make_application(tagKeep=1)
    system.agent.images_in_use.add(first)
    await system.enable("v2")
    await eventually(lambda: first not in system.agents[1].images)
    await eventually(lambda: system.agent.removal_asked.count(first) >= 3)
    assert first in system.agent.images
    system.agent.images_in_use.clear()
    await _gone(system, first)


async def test_an_image_that_another_application_runs_stays(system: System) -> None:
    image = await system.make_application(tagKeep=1)
    await system.make_application(account="bob")
    await system.enable("v2")
    assert not await _exists(system, "v1")
    third = await system.enable("v3")
    await eventually(lambda: all(len(agent.images) == 2 for agent in system.agents))
    assert set(system.agent.images) == {image, third}
    assert all(image not in agent.removal_asked for agent in system.agents)
