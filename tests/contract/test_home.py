"""HOME in containers: the engine's choice, except for users that the image does not know."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.contract.images import pushed
from tests.contract.stages import DockerStage, hand_over, waiting
from tests.support.agent.tars import Entry
from tests.support.harness import Registry

pytestmark = [pytest.mark.docker, pytest.mark.registry]

PASSWD = b"root:x:0:0::/root:\ngame:x:1000:1000::/home/game:\nslash:x:1001:1001::/:\n"


@pytest.mark.parametrize(
    ("settings", "given", "by_engine", "expected"),
    [
        ({"User": ""}, {}, "/root", "/root"),
        ({"User": "game"}, {}, "/home/game", "/home/game"),
        ({"User": "1000"}, {}, "/home/game", "/home/game"),
        ({"User": "slash"}, {}, "/", "/"),
        ({"User": "4711"}, {}, "/", "/tmp"),
        ({"User": "4711:4711"}, {}, "/", "/tmp"),
        ({"User": "4711", "Env": ["HOME=/data"]}, {}, "/data", "/data"),
        ({"User": "4711", "Env": ["HOME=/"]}, {}, "/", "/"),
        ({"User": "4711", "Env": ["HOME="]}, {}, "/", "/tmp"),
        ({"User": "4711"}, {"HOME": "/given"}, "/", "/given"),
        ({"User": "4711", "Env": ["HOME=/data"]}, {"HOME": "/"}, "/data", "/"),
    ],
)
async def test_home_is_tmp_only_where_nobody_has_set_it(
    docker_stage: DockerStage,
    docker_engine: Path,
    registry: Registry,
    settings: dict[str, Any],
    given: dict[str, str],
    by_engine: str,
    expected: str,
) -> None:
    passwd = Entry(b"etc/passwd", content=PASSWD)
    image = pushed(docker_engine, registry.address, "home", more=[passwd], **settings)
    container = await waiting(docker_stage, image=image)
    assert container.process is not None
    environment = Path(f"/proc/{container.process.pid}/environ")
    variables_of_init = await asyncio.to_thread(environment.read_text)
    assert f"HOME={by_engine}" in variables_of_init.split("\0")
    await hand_over(docker_stage, container, "silent", env=given)
    _, variables = await docker_stage.executed(container)
    assert variables["HOME"] == expected


async def test_home_of_an_image_from_scratch_is_tmp(docker_stage: DockerStage) -> None:
    container = await waiting(docker_stage)
    await hand_over(docker_stage, container, "silent")
    _, variables = await docker_stage.executed(container)
    assert variables["HOME"] == "/tmp"
