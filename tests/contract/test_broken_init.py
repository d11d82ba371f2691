"""Containers whose init cannot begin, which is no fault of their image."""

import asyncio
import shutil
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import docker
import pytest

from agent.domain.containers.engine import InitState
from agent.domain.errors import EngineError, ImageCannotRunError
from agent.init import binary
from tests.contract.images import foreign
from tests.contract.stages import DockerStage, created, start
from tests.support.agent.tars import Entry, folder
from tests.support.harness import Registry
from tests.support.pushed_image import push_image

pytestmark = [pytest.mark.docker, pytest.mark.registry]


def not_executable(path: Path) -> None:
    shutil.copy(binary.PATH, path)
    path.chmod(0o644)


def of_another_machine(path: Path) -> None:
    path.write_bytes(foreign(binary.PATH.read_bytes()))
    path.chmod(0o755)


def dynamic(path: Path) -> None:
    """A program that needs what no image has."""
    shutil.copy("/bin/false", path)


BROKEN: dict[Callable[[Path], None], str] = {
    not_executable: 'exec: "/run/tiltyard-init": permission denied',
    of_another_machine: "exec /run/tiltyard-init: exec format error",
    dynamic: "exec /run/tiltyard-init: no such file or directory",
}


@pytest.mark.parametrize("make", BROKEN)
async def test_init_that_cannot_be_executed_is_named(
    docker_stage: DockerStage, tmp_path: Path, make: Callable[[Path], None]
) -> None:
    init = tmp_path / "init"
    await asyncio.to_thread(make, init)
    container = await created(docker_stage, init=str(init))
    with pytest.raises(EngineError) as error:
        await start(docker_stage, container)
    assert BROKEN[make] in str(error.value)
    found = await docker_stage.engine.inspect(container.container)
    assert found.init is InitState.UNKNOWN
    assert not found.is_running


async def test_init_that_has_gone_is_named(docker_stage: DockerStage, tmp_path: Path) -> None:
    init = tmp_path / "init"
    await asyncio.to_thread(shutil.copy, binary.PATH, init)
    container = await created(docker_stage, init=str(init))
    await asyncio.to_thread(init.unlink)
    with pytest.raises(EngineError, match=f"{init}"):
        await start(docker_stage, container)


async def test_channel_that_has_gone_is_named(docker_stage: DockerStage) -> None:
    container = await created(docker_stage)
    nowhere = docker_stage.folder / "none"
    with pytest.raises(EngineError, match=r"its channel cannot be opened: .*No such file"):
        await docker_stage.engine.start(container.container, nowhere)
    assert (await docker_stage.engine.inspect(container.container)).process is None


CLOSED = replace(folder(b"run"), mode=0o700)
UNUSABLE = {
    "closed to its user": ([CLOSED], "/run/tiltyard-init: permission denied"),
    "a folder for the init": (
        [folder(b"run"), folder(b"run/tiltyard-init")],
        "it has something of its own at /run/tiltyard-init",
    ),
    "a file for the folder": (
        [folder(b"run"), Entry(b"run/tiltyard")],
        "it has something of its own at /run/tiltyard",
    ),
}


@pytest.mark.parametrize("name", UNUSABLE)
async def test_image_that_hides_the_init_cannot_run(
    docker_stage: DockerStage, registry: Registry, name: str
) -> None:
    entries, cause = UNUSABLE[name]
    image = await asyncio.to_thread(pushed_with, docker_stage.socket, registry.address, entries)
    container = await created(docker_stage, image=image)
    with pytest.raises(ImageCannotRunError) as error:
        await start(docker_stage, container)
    assert error.value.cause == cause


def pushed_with(socket: Path, address: str, entries: Sequence[Entry]) -> str:
    """Push an image of the game with these files, and pull it."""
    image = push_image(address, "hides", entries=entries, config={"User": "5"}).reference
    with closing(docker.DockerClient(f"unix://{socket}", timeout=60)) as client:
        client.images.pull(image)
    return image
