"""One agent as others meet it: its socket, its stream, and its end."""

import asyncio
import contextlib
import socket
import stat
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.app.daemon import Daemon, _bounded
from agent.images.images import Images
from agent.kernel.clock import SystemHostClock
from agent.settings.model import AgentConfig
from agent.state.record import Records
from tests.support.agent.hosts import let_go, nobody_else
from tests.support.agent.samples import IMAGE, an_id
from tests.support.fakes import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.runtime.tasks import first_completed

DEADLINE = 20.0
CLOCK = SystemHostClock()


def _config(folder: Path, state: str = "state") -> AgentConfig:
    return AgentConfig(
        state_dir=folder / state,
        socket=folder / "run" / "agent.sock",
        public_address="192.0.2.1",
        metrics_listen="",
        cpu=1000,
        ram=1024 * 1024,
        stop_grace=0.05,
        firewall_bridges=(),
    )


@contextlib.asynccontextmanager
async def _served(
    config: AgentConfig, engine: FakeEngine
) -> AsyncIterator[tuple[Any, asyncio.Task[None]]]:
    """An agent that serves, and a stub that speaks to it."""
    daemon = Daemon(config, engine, CLOCK, nobody_else)
    work = asyncio.create_task(daemon.run(), name="agent")
    if not await first_completed(daemon.serving.wait(), asyncio.wait({work}), "serving"):
        await work  # it tells why
    try:
        async with grpc.aio.insecure_channel(f"unix:{config.socket}") as channel:
            yield agent_pb2_grpc.AgentServiceStub(channel), work
    finally:
        await let_go(work)


async def _reconciled(stub: Any) -> None:
    while not (await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).reconciled:
        await asyncio.sleep(0)


@pytest.fixture
def engine() -> FakeEngine:
    engine = FakeEngine()
    engine.add_image(IMAGE)
    return engine


async def test_the_socket_is_for_its_owner_and_group_alone(
    tmp_path: Path, engine: FakeEngine
) -> None:
    config = _config(tmp_path)
    async with _served(config, engine):
        assert stat.S_IMODE(config.socket.stat().st_mode) == 0o660
        assert stat.S_IMODE(config.socket.parent.stat().st_mode) & 0o007 == 0


async def test_a_second_agent_leaves_the_socket_of_the_first_alone(
    tmp_path: Path, engine: FakeEngine
) -> None:
    config = _config(tmp_path)
    async with _served(config, engine) as (stub, _):
        with pytest.raises(RuntimeError, match="another agent serves on"):
            await Daemon(_config(tmp_path, "other"), engine, CLOCK, nobody_else).run()
        await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)


async def test_a_socket_that_a_killed_agent_left_is_replaced(
    tmp_path: Path, engine: FakeEngine
) -> None:
    config = _config(tmp_path)
    config.socket.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(config.socket))
        killed.listen()
    assert config.socket.exists()
    async with _served(config, engine) as (stub, _):
        await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)


async def test_a_silent_stream_beats(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.rpc.service.HEARTBEAT_SECONDS", 0.01)
    async with _served(_config(tmp_path), engine) as (stub, _):
        await _reconciled(stub)
        watch = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        while (await watch.read()).WhichOneof("event") != "snapshot_end":
            continue
        beats = [(await watch.read()).WhichOneof("event") for _ in range(3)]
        assert beats == ["heartbeat"] * 3
        watch.cancel()


async def test_an_agent_that_stops_ends_its_streams(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.app.daemon.GRACE_SECONDS", 20.0)
    monkeypatch.setattr("agent.app.daemon.STAGE_SECONDS", 25.0)
    async with _served(_config(tmp_path), engine) as (stub, work):
        await _reconciled(stub)
        watch = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        await watch.read()
        work.cancel()
        while await watch.read() is not grpc.aio.EOF:
            continue
        assert await watch.code() is grpc.StatusCode.OK  # told to go, not cut off
        await asyncio.gather(work, return_exceptions=True)


@pytest.mark.parametrize("part", ["engine", "images", "records"])
async def test_a_part_that_does_not_let_go_holds_up_the_stop_of_the_agent_for_a_moment_only(
    tmp_path: Path,
    engine: FakeEngine,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    part: str,
) -> None:
    hung: Any = {"engine": FakeEngine, "images": Images, "records": Records}[part]
    close = hung.close

    async def hang(self: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await close(self)

    async def hasty(name: str, end: Callable[[], Awaitable[object]]) -> None:
        monkeypatch.setattr("agent.app.daemon.STAGE_SECONDS", 0.01 if name == part else 20.0)
        await _bounded(name, end)

    monkeypatch.setattr(hung, "close", hang)
    monkeypatch.setattr("agent.app.daemon._bounded", hasty)
    async with _served(_config(tmp_path), engine) as (stub, work):
        await _reconciled(stub)
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
    assert f"a part did not stop in time part={part} seconds=" in caplog.text
    monkeypatch.undo()
    async with _served(_config(tmp_path), engine) as (stub, _):  # all others did
        await _reconciled(stub)


async def test_the_host_names_what_it_has_counted_before_it_tells_of_it(
    tmp_path: Path, engine: FakeEngine
) -> None:
    async with _served(_config(tmp_path), engine) as (stub, _):
        await _reconciled(stub)
        watch: Any = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        told: set[str] = set()

        async def next_host() -> pb.Host:
            while (message := await watch.read()).WhichOneof("event") != "host":
                told.update(session.internal_id for session in message.sessions.sessions)
            host: pb.Host = message.host
            return host

        assert not (await next_host()).starting
        first, second = an_id(), an_id()
        engine.hold("start")
        start = asyncio.ensure_future(stub.StartSession(_large(first), timeout=DEADLINE))
        await engine.held("start")
        await stub.SetDrain(pb.SetDrainRequest(revision=1), timeout=DEADLINE)
        host = await next_host()
        assert [*host.starting] == [first]
        assert host.reserved.nano_cpus > 0
        engine.release("start")
        await start
        while not (host := await next_host()).starting or first in told:
            continue
        assert [*host.starting] == [first]  # told of by the message that follows
        await stub.StartSession(_large(second), timeout=DEADLINE)
        while first in (host := await next_host()).starting:
            continue
        assert first in told
        watch.cancel()


async def test_a_page_of_large_sessions_fits_a_message(tmp_path: Path, engine: FakeEngine) -> None:
    async with _served(_config(tmp_path), engine) as (stub, _):
        await _reconciled(stub)
        ids = [an_id() for _ in range(8)]
        for internal_id in ids:
            await stub.StartSession(_large(internal_id), timeout=DEADLINE)
        found, pages, token = [], 0, ""
        while pages == 0 or token:
            request = pb.ListSessionsRequest(page_size=1000, page_token=token)
            page = await stub.ListSessions(request, timeout=DEADLINE)
            assert page.ByteSize() < 4 * 1024 * 1024
            found += [session.internal_id for session in page.sessions]
            token, pages = page.next_page_token, pages + 1
        assert sorted(found) == sorted(ids)
        assert pages > 1


def _large(internal_id: str) -> pb.StartSessionRequest:
    return pb.StartSessionRequest(
        internal_id=internal_id,
        spec=pb.SessionSpec(
            format=1,
            identity=pb.Identity(
                account="a",
                session_id=internal_id,
                application="game",
                tag="v1",
                location="local",
                labels={"large": "x" * 600_000},
            ),
            image=IMAGE,
            network_mode=pb.NETWORK_MODE_BRIDGE,
            reservation=pb.Resources(nano_cpus=10**8, memory_bytes=64 * 2**20),
            limits=pb.Resources(nano_cpus=10**8, memory_bytes=64 * 2**20),
        ),
    )
