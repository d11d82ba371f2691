"""What contract tests run over: engines, the fake one and Docker, and an agent on its socket."""

import contextlib
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.docker.engine import DockerEngine
from tests.contract.images import pushed
from tests.contract.stages import DockerStage, FakeStage, Images, Stage, cleared
from tests.support.agent.hand_overs import patient_hand_overs
from tests.support.agent.samples import IMAGE
from tests.support.agent.served import CLOCK, served
from tests.support.fake_engine import FakeEngine
from tests.support.harness import Registry
from tests.support.real_engine import remove_traces
from tiltyard.agent.v1 import agent_pb2_grpc

__all__ = ["patient_hand_overs"]


@pytest.fixture(scope="session")
def images(docker_engine: Path, registry: Registry) -> Iterator[Images]:
    where = (docker_engine, registry.address)
    yield Images(
        runs=pushed(*where, "contract"),
        no_user=pushed(*where, "contract-user", User="nobody-of-this-name"),
        bare=pushed(*where, "contract-bare", Entrypoint=None),
        command=pushed(*where, "contract-command", Cmd=["silent"]),
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
        images = request.getfixturevalue("images")
        made = DockerStage(tmp_path, DockerEngine(str(socket)), images, socket)
    async with contextlib.asynccontextmanager(cleared)(made):
        yield made


@pytest.fixture
async def docker_stage(
    tmp_path: Path, docker_engine: Path, images: Images
) -> AsyncIterator[DockerStage]:
    """The stage of tests over Docker alone."""
    made = DockerStage(tmp_path, DockerEngine(str(docker_engine)), images, docker_engine)
    async with contextlib.asynccontextmanager(cleared)(made):
        yield made


@pytest.fixture
def engine() -> FakeEngine:
    engine = FakeEngine()
    engine.image_store.add(IMAGE)
    return engine


@pytest.fixture
async def stub(tmp_path: Path, engine: FakeEngine) -> AsyncIterator[Any]:
    async with (
        served(tmp_path, engine, CLOCK) as agent,
        grpc.aio.insecure_channel(f"unix:{agent.config.socket}") as channel,
    ):
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        stub.feed = agent.daemon.feed
        yield stub
