from __future__ import annotations

import asyncio
import contextlib
import io
import random
import tarfile
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.artifacts.fetching import Artifacts, FetchTimeouts, checked_path
from agent.artifacts.spool_room import SpoolRoom
from agent.artifacts.tar_filter import TarLimits
from agent.domain import errors
from agent.logs.reading import CHUNK_BYTES
from tests.support.agent.hosts import Agent, until
from tests.support.agent.samples import a_spec, an_id
from tests.support.agent.tars import Entry, folder, tar_of
from tests.support.tasks import let_go
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.contract import EndReason

MEGABYTE = 10**6
NOISE = random.Random(1).randbytes(20 * MEGABYTE)
"""Incompressible, and more than gRPC sends ahead of a reader."""


async def ended(agent: Agent, files: dict[str, bytes]) -> str:
    session = await agent.sessions.start(an_id(), a_spec())
    name = f"tiltyard-{session.internal_id}"
    for path, data in files.items():
        agent.engine.find(name).put_file(path, data)
    await agent.sessions.stop(session.internal_id, EndReason.STOPPED)
    return name


def artifacts(
    agent: Agent, *, limits: TarLimits | None = None, timeouts: FetchTimeouts | None = None
) -> Artifacts:
    return Artifacts(
        agent.engine,
        agent.records,
        SpoolRoom(300 * MEGABYTE, 100 * MEGABYTE, patience=0.0),
        limits=limits or TarLimits(),
        timeouts=timeouts or FetchTimeouts(),
    )


async def fetched(artifacts: Artifacts, name: str, path: str) -> bytes:
    found = bytearray()

    async def send(chunk: bytes) -> None:
        assert len(chunk) <= CHUNK_BYTES
        found.extend(chunk)

    await artifacts.fetch(name, path, send, account="acme")
    return bytes(found)


def nothing_is_spooled(agent: Agent) -> bool:
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            if str(link.readlink()).startswith(str(agent.records.spool_dir)):
                return False
    return True


async def test_serves_tar_gz_whose_names_begin_with_the_last_component(agent: Agent) -> None:
    name = await ended(agent, {"/srv/data/save.json": b'{"level": 3}'})
    for path, names in {
        "/srv/data/save.json": ["save.json"],
        "/srv/data/": ["data", "data/save.json"],
        "/srv//./data": ["data", "data/save.json"],
        "/srv/data/../data/.": ["data", "data/save.json"],
        "//": [".", "./srv", "./srv/data", "./srv/data/save.json"],
        "/..": [".", "./srv", "./srv/data", "./srv/data/save.json"],
    }.items():
        archive = io.BytesIO(await fetched(artifacts(agent), name, path))
        with tarfile.open(fileobj=archive, mode="r:gz") as tar:
            assert tar.getnames() == names, path
            member = tar.extractfile(names[-1])
            assert member is not None
            assert member.read() == b'{"level": 3}'
    assert list(agent.records.spool_dir.iterdir()) == []


@pytest.mark.parametrize(
    "path",
    [
        "relative",
        "",
        "./x",
        "/nul\0",
        "/" + "x" * 4096,
    ],
)
def test_rejects_impossible_path(path: str) -> None:
    with pytest.raises(errors.InvalidArgumentError):
        checked_path(path)


async def test_rejects_too_large_archive_before_the_first_byte(agent: Agent) -> None:
    name = await ended(agent, {"/big": bytes(1_000_000), "/small": bytes(900_000)})
    small = artifacts(agent, limits=TarLimits(total_bytes=1_000_000))
    assert len(await fetched(small, name, "/small")) < 10_000
    with pytest.raises(errors.ArtifactTooLargeError):
        await small.fetch(name, "/big", lambda _: pytest.fail("it was sent"), account="acme")
    assert nothing_is_spooled(agent)


async def test_reports_spool_that_cannot_be_written(agent: Agent) -> None:
    name = await ended(agent, {"/x": b"x"})
    agent.records.spool_dir.rmdir()
    with pytest.raises(errors.DiskFullError):
        await fetched(artifacts(agent), name, "/x")


def send(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, chunks: Callable[[str], AsyncGenerator[bytes]]
) -> None:
    """Script the archive of a container."""

    @contextlib.asynccontextmanager
    async def archive(container: str, _path: str) -> AsyncIterator[AsyncIterator[bytes]]:
        async with contextlib.aclosing(chunks(container)) as found:
            yield found

    monkeypatch.setattr(agent.engine, "archive", archive)


@pytest.mark.parametrize("cut", [0, 512, 700, 1024, 2047])
async def test_truncated_archive_is_never_sent(
    agent: Agent, monkeypatch: pytest.MonkeyPatch, cut: int
) -> None:
    whole = tar_of([Entry(b"x", content=b"x" * 10)])

    async def chunks(_: str) -> AsyncGenerator[bytes]:
        yield whole[:cut]

    send(agent, monkeypatch, chunks)
    with pytest.raises(errors.UnreadableTarError):
        await fetched(artifacts(agent), "any", "/x")


async def test_path_of_no_file_is_not_found(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    async def chunks(container: str) -> AsyncGenerator[bytes]:
        yield tar_of([Entry(b"x", tarfile.FIFOTYPE)] if container == "fifo" else [])

    send(agent, monkeypatch, chunks)
    for container in ("fifo", "socket"):
        with pytest.raises(errors.PathNotFoundError):
            await fetched(artifacts(agent), container, "/x")


async def test_f10_a_hung_archive_harms_only_itself(
    agent: Agent, monkeypatch: pytest.MonkeyPatch
) -> None:
    hangs = asyncio.Event()
    closed = set[str]()

    async def chunks(container: str) -> AsyncGenerator[bytes]:
        try:
            yield tar_of([folder(b"x")], end=False)
            if container == "hung":
                hangs.set()
                await asyncio.Event().wait()
            yield bytes(1024)
        finally:
            closed.add(container)

    send(agent, monkeypatch, chunks)
    packing = artifacts(agent, timeouts=FetchTimeouts(pack=2.0))
    hung = asyncio.create_task(fetched(packing, "hung", "/x"))
    await hangs.wait()
    packing.timeouts = FetchTimeouts()  # only what hangs has little time
    with pytest.raises(errors.ReadersBusyError):
        await fetched(packing, "hung", "/x")
    assert await fetched(packing, "sound", "/x")
    with pytest.raises(errors.EngineTimeoutError):
        await hung
    assert "hung" in closed  # so the engine releases the container's lock
    assert nothing_is_spooled(agent)


@contextlib.asynccontextmanager
async def slow_reader(artifacts: Artifacts, name: str, path: str) -> AsyncIterator[None]:
    """A reader that takes one chunk and no more; it disconnects at the end of the block."""
    sent = asyncio.Event()

    async def send(_: bytes) -> None:
        sent.set()
        await asyncio.Event().wait()

    reading = asyncio.create_task(artifacts.fetch(name, path, send, account="acme"))
    await sent.wait()
    yield
    await let_go(reading)


async def test_slow_reader_does_not_block_packing(agent: Agent) -> None:
    name = await ended(agent, {"/x": NOISE[:MEGABYTE]})
    both = artifacts(agent)
    async with slow_reader(both, name, "/x"):
        assert await fetched(both, name, "/x")


async def test_readers_that_fill_the_spool_block_others_until_one_leaves(agent: Agent) -> None:
    first = await ended(agent, {"/x": NOISE[:MEGABYTE]})
    second = await ended(agent, {"/x": NOISE[:MEGABYTE]})
    room = SpoolRoom(3 * MEGABYTE, 2 * MEGABYTE, patience=0.0)
    tight = Artifacts(agent.engine, agent.records, room)
    async with slow_reader(tight, first, "/x"):
        with pytest.raises(errors.ReadersBusyError):
            await fetched(tight, second, "/x")
    assert len(await fetched(tight, second, "/x")) > MEGABYTE


@contextlib.asynccontextmanager
async def begun(agent: Agent, artifacts: Artifacts, tmp_path: Path) -> AsyncIterator[Any]:
    """A call for an artifact over gRPC, of which a first part has arrived."""
    name = await ended(agent, {"/x": NOISE})
    request = pb.FetchArtifactRequest(internal_id=name.removeprefix("tiltyard-"), path="/x")
    service = agent.service(lambda: pytest.fail("unexpected call"), artifacts)
    server = grpc.aio.server()
    agent_pb2_grpc.add_AgentServiceServicer_to_server(service, server)
    server.add_insecure_port(f"unix:{tmp_path}/grpc.sock")
    await server.start()
    async with grpc.aio.insecure_channel(f"unix:{tmp_path}/grpc.sock") as channel:
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        call = stub.FetchArtifact(request, timeout=50)
        assert (await call.read()).data
        yield call
    await server.stop(0)


@pytest.mark.parametrize(
    "timeouts",
    [
        FetchTimeouts(idle=1.0),
        FetchTimeouts(serve=1.0),
    ],
)
async def test_stalled_spool_is_removed(
    agent: Agent, tmp_path: Path, timeouts: FetchTimeouts
) -> None:
    async with begun(agent, artifacts(agent, timeouts=timeouts), tmp_path) as call:
        await until(lambda: nothing_is_spooled(agent))
        with pytest.raises(grpc.aio.AioRpcError) as error:
            while await call.read() is not grpc.aio.EOF:
                pass
        assert error.value.details() == str(errors.ReaderTooSlowError())


async def test_spool_of_a_disconnected_caller_is_removed(agent: Agent, tmp_path: Path) -> None:
    async with begun(agent, artifacts(agent), tmp_path) as call:
        assert not nothing_is_spooled(agent)
        call.cancel()
        await until(lambda: nothing_is_spooled(agent))
