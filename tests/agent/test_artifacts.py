from __future__ import annotations

import io
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from agent import artifacts
from agent.artifacts import Artifacts, checked_path
from agent.errors import ArtifactTooLarge, ContainerGone, DiskFull, InvalidArgument, PathNotFound
from agent.session import EndReason
from tests.agent.hosts import Agent, an_agent
from tests.agent.samples import a_spec, an_id
from tests.fakes import FakeClock, FakeEngine


@pytest.fixture
async def agent(tmp_path: Path) -> AsyncIterator[Agent]:
    clock = FakeClock()
    async with an_agent(tmp_path, FakeEngine(clock), clock) as agent:
        yield agent


async def ended(agent: Agent, files: dict[str, bytes]) -> str:
    session = await agent.sessions.start(an_id(), a_spec())
    name = f"tiltyard-{session.internal_id}"
    for path, data in files.items():
        agent.engine.put_file(name, path, data)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    return name


async def fetched(agent: Agent, name: str, path: str) -> bytes:
    packed = Artifacts(agent.engine, agent.records).fetch(name, path)
    return b"".join([chunk async for chunk in packed])


async def test_a_file_comes_as_a_tar_gz_and_nothing_stays(agent: Agent) -> None:
    name = await ended(agent, {"/data/save.json": b'{"level": 3}'})
    archive = await fetched(agent, name, "/data/save.json")
    with tarfile.open(fileobj=io.BytesIO(archive), mode="r:gz") as tar:
        assert tar.getnames() == ["save.json"]
        member = tar.extractfile("save.json")
        assert member is not None
        assert member.read() == b'{"level": 3}'
    assert list(agent.records.spool_dir.iterdir()) == []


@pytest.mark.parametrize("path", ["relative", "", "./x", "/nul\0", "/" + "x" * 4096])
def test_a_path_that_no_file_can_have_is_refused(path: str) -> None:
    with pytest.raises(InvalidArgument):
        checked_path(path)


async def test_absent_paths_and_containers_are_told_apart(agent: Agent) -> None:
    name = await ended(agent, {})
    with pytest.raises(PathNotFound):
        await fetched(agent, name, "/none")
    await agent.engine.remove(name)
    with pytest.raises(ContainerGone):
        await fetched(agent, name, "/none")


async def test_too_much_is_refused_before_the_first_byte(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(artifacts, "LARGEST_BYTES", 1_000_000)
    name = await ended(agent, {"/big": bytes(1_000_000), "/small": bytes(900_000)})
    assert len(await fetched(agent, name, "/small")) < 10_000
    chunks = 0
    with pytest.raises(ArtifactTooLarge):
        async for _ in Artifacts(agent.engine, agent.records).fetch(name, "/big"):
            chunks += 1
    assert chunks == 0
    assert list(agent.records.spool_dir.iterdir()) == []


async def test_a_spool_that_cannot_be_written_is_told_as_such(agent: Agent) -> None:
    name = await ended(agent, {"/x": b"x"})
    agent.records.spool_dir.rmdir()
    with pytest.raises(DiskFull):
        await fetched(agent, name, "/x")
