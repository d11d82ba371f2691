"""The engines that contract tests run over: the fake one, and Docker."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from agent.docker.engine import DockerEngine
from tests.contract.images import pushed
from tests.contract.stages import DockerStage, FakeStage, Images, Stage, cleared
from tests.support.harness import Registry
from tests.support.real_engine import remove_traces


@pytest.fixture(scope="session")
def images(docker_engine: Path, registry: Registry) -> Iterator[Images]:
    where = (docker_engine, registry.address)
    yield Images(
        runs=pushed(*where, "contract"),
        cannot_run=pushed(*where, "contract-user", "nobody-of-this-name"),
        absent=pushed(*where, "contract-pull"),
    )
    remove_traces(docker_engine, registry.address)


@pytest.fixture(
    params=["fake", pytest.param("docker", marks=[pytest.mark.docker, pytest.mark.registry])]
)
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Stage]:
    made: Stage
    if request.param == "fake":
        made = FakeStage(tmp_path)
    else:
        socket: Path = request.getfixturevalue("docker_engine")
        made = DockerStage(tmp_path, DockerEngine(str(socket)), request.getfixturevalue("images"))
    async with contextlib.asynccontextmanager(cleared)(made):
        yield made
