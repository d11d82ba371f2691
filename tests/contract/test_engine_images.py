"""What every `Engine` does with images: these tests run over the fake one and over Docker."""

import pytest

from agent.domain.errors import ImageInUseError, ImageNotFoundError, InvalidArgumentError
from tests.contract.images import forget
from tests.contract.stages import DockerStage, Stage, spec


async def pulled(stage: Stage, image: str) -> None:
    async with stage.engine.pull(image) as steps:
        async for _ in steps:
            pass


class TestImages:
    async def test_a_pull_brings_the_image_and_may_be_repeated(
        self, stage: Stage, request: pytest.FixtureRequest
    ) -> None:
        image = stage.images.absent
        if isinstance(stage, DockerStage):
            forget(request.getfixturevalue("docker_engine"), image)
        before = await stage.engine.images()
        assert stage.images.runs in before
        assert image not in before
        async with stage.engine.pull(image) as steps:
            progress = [step async for step in steps]
        assert progress[-1].layers > 0
        assert progress[-1].layers_done == progress[-1].layers
        received = [step.received_bytes for step in progress]
        assert received == sorted(received)
        after = await stage.engine.images()  # others may pull and remove images meanwhile
        assert after[image] > 0
        await pulled(stage, image)
        await stage.engine.create(await spec(stage, image=image))

    async def test_an_image_that_the_registry_does_not_have(self, stage: Stage) -> None:
        unknown = stage.images.unknown
        for image in (unknown, unknown.replace("@", "-none@")):
            with pytest.raises(ImageNotFoundError) as error:
                await pulled(stage, image)
            assert error.value.image == image

    async def test_only_a_reference_by_digest_is_pulled(self, stage: Stage) -> None:
        with pytest.raises(InvalidArgumentError):
            async with stage.engine.pull(stage.images.runs.partition("@")[0]):
                pass

    async def test_an_image_is_removed_once_no_container_is_made_of_it(self, stage: Stage) -> None:
        image = stage.images.absent
        await pulled(stage, image)
        container = await stage.engine.create(await spec(stage, image=image))
        with pytest.raises(ImageInUseError) as error:
            await stage.engine.remove_image(image)
        assert error.value.image == image
        assert image in await stage.engine.images()
        await stage.engine.remove(container)
        await stage.engine.remove_image(image)
        assert image not in await stage.engine.images()
        await stage.engine.remove_image(image)
        await pulled(stage, image)
        assert image in await stage.engine.images()
