"""One agent from the outside: its socket, its streams, and its shutdown."""

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
from agent.state.record import Records
from controlplane.agent_rpc.wire import shapes_out
from tests.contract.test_agent_service import DEADLINE, POLL, start_request
from tests.support.agent.demands import a_shape
from tests.support.agent.hosts import all_ports_free, until
from tests.support.agent.samples import IMAGE
from tests.support.agent.served import WholeAgent
from tests.support.fake_clock import FakeClock
from tests.support.fake_engine import FakeEngine
from tests.support.service_manager import a_manager
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc
from tiltyard.contract import MEBI, Protocol, shape_key
from tiltyard.runtime.systemd import Supervision

LARGE = pb.Identity(
    account="a", session_id="m1", application="game", tag="v1", labels={"large": "x" * 120_000}
)


def an_agent(folder: Path, engine: FakeEngine, state: str = "state") -> WholeAgent:
    return WholeAgent(
        folder / "run",
        "agent",
        engine=engine,
        state_dir=folder / state,
        cpu=1000,
        ram=1024 * 1024,
        stop_grace=0.05,
    )


@contextlib.asynccontextmanager
async def serving(folder: Path, engine: FakeEngine) -> AsyncIterator[tuple[Any, WholeAgent]]:
    """Run an agent; yield a stub connected to it and the agent."""
    async with (
        an_agent(folder, engine) as agent,
        grpc.aio.insecure_channel(agent.address) as channel,
    ):
        yield agent_pb2_grpc.AgentServiceStub(channel), agent


async def _reconciled(stub: Any) -> None:
    while not (await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).reconciled:
        await asyncio.sleep(POLL)


async def _host(stub: Any) -> Any:
    return (await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).host


@pytest.fixture
def engine() -> FakeEngine:
    engine = FakeEngine()
    engine.image_store.add(IMAGE)
    return engine


async def test_socket_is_private_and_a_second_agent_does_not_replace_it(
    tmp_path: Path, engine: FakeEngine
) -> None:
    async with serving(tmp_path, engine) as (stub, agent):
        assert stat.S_IMODE(agent.config.socket.stat().st_mode) == 0o660
        assert stat.S_IMODE(agent.config.socket.parent.stat().st_mode) & 0o007 == 0
        with pytest.raises(RuntimeError, match="another agent serves on"):
            await an_agent(tmp_path, engine, "other").start()
        await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)


async def test_replaces_socket_of_a_killed_agent(tmp_path: Path, engine: FakeEngine) -> None:
    path = an_agent(tmp_path, engine).config.socket
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as killed:
        killed.bind(str(path))
        killed.listen()
    assert path.exists()
    async with serving(tmp_path, engine) as (stub, _):
        await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)


@pytest.mark.parametrize(
    ("settings", "mebibytes"),
    [
        ({"ram": 4096}, 4096 - 32),
        ({"ram": 16}, 0),
        ({"ram": None}, 64 * 1024 - 512 - 32),
    ],
)
async def test_prepared_containers_come_off_the_allocatable_memory(
    tmp_path: Path, settings: dict[str, Any], mebibytes: int
) -> None:
    async with (
        WholeAgent(tmp_path, "agent", prepared=4, **settings) as agent,
        grpc.aio.insecure_channel(agent.address) as channel,
    ):
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        await _reconciled(stub)
        answer = await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)
        assert answer.host.capacity.memory_bytes == mebibytes * MEBI


async def test_reports_prepared_containers_and_their_ports_as_free(
    tmp_path: Path, engine: FakeEngine
) -> None:
    shape = a_shape()
    async with (
        WholeAgent(tmp_path, "agent", engine=engine, prepared=4) as agent,
        grpc.aio.insecure_channel(agent.address) as channel,
    ):
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        await stub.SetShapes(shapes_out([shape]), timeout=DEADLINE)
        while not (host := await _host(stub)).prepared:
            await asyncio.sleep(POLL)
        [kept] = host.prepared
        assert kept.key == shape_key(shape)
        assert kept.kept == 1
        assert host.free_udp_ports == 10001
        assert agent.daemon.prepared.held_ports(Protocol.UDP) == 1


async def test_warns_about_what_cannot_be_prepared(tmp_path: Path, engine: FakeEngine) -> None:
    engine.cannot_start.add(IMAGE)
    async with (
        WholeAgent(tmp_path, "agent", engine=engine, prepared=4) as agent,
        grpc.aio.insecure_channel(agent.address) as channel,
    ):
        stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
        await stub.SetShapes(shapes_out([a_shape()]), timeout=DEADLINE)
        warning = f"prepared containers of {IMAGE}: cannot run the image: as scripted"
        while warning not in (host := await _host(stub)).warnings:
            await asyncio.sleep(POLL)
        assert host.prepared[0].error == "cannot run the image: as scripted"


async def test_stop_ends_streams(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.app.daemon.GRACE_SECONDS", 20.0)
    monkeypatch.setattr("agent.app.daemon.STAGE_SECONDS", 25.0)
    async with serving(tmp_path, engine) as (stub, agent):
        await _reconciled(stub)
        watch = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        await watch.read()
        stopping = asyncio.create_task(agent.stop(), name="stopping")
        while await watch.read() is not grpc.aio.EOF:
            continue
        assert await watch.code() is grpc.StatusCode.OK  # ended, not cut off
        await stopping


@pytest.mark.parametrize("part", ["engine", "images", "records"])
async def test_hung_component_delays_shutdown_only_briefly(
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
    async with serving(tmp_path, engine) as (stub, agent):
        await _reconciled(stub)
        await agent.stop()
    assert f"component did not stop in time part={part} seconds=" in caplog.text
    monkeypatch.undo()
    async with serving(tmp_path, engine) as (stub, _):  # all others stopped
        await _reconciled(stub)


async def test_host_lists_counted_sessions_that_are_not_sent_yet(
    tmp_path: Path, engine: FakeEngine
) -> None:
    async with serving(tmp_path, engine) as (stub, _):
        await _reconciled(stub)
        watch: Any = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        sent: set[str] = set()

        async def read() -> Any:
            message = await watch.read()
            sent.update(session.internal_id for session in message.sessions.sessions)
            return message

        async def next_host() -> pb.Host:
            while (message := await read()).WhichOneof("event") != "host":
                continue
            host: pb.Host = message.host
            return host

        assert not (await next_host()).starting
        request = start_request(identity=LARGE)
        first = request.internal_id
        engine.hold("start")
        start = asyncio.ensure_future(stub.StartSession(request, timeout=DEADLINE))
        await engine.held("start")
        await stub.SetDrain(pb.SetDrainRequest(revision=1), timeout=DEADLINE)
        host = await next_host()
        assert [*host.starting] == [first]
        assert host.reserved.nano_cpus > 0
        engine.release("start")
        await start
        while first not in sent:  # the host may be sent several times until then
            message = await read()
            assert message.WhichOneof("event") != "host" or [*message.host.starting] == [first]
        starting = [first]
        revision = 1
        while starting:  # the next host message still lists it
            revision += 1
            await stub.SetDrain(pb.SetDrainRequest(revision=revision), timeout=DEADLINE)
            starting = [*(await next_host()).starting]
        watch.cancel()


async def test_page_of_large_sessions_fits_a_message(tmp_path: Path, engine: FakeEngine) -> None:
    async with serving(tmp_path, engine) as (stub, _):
        await _reconciled(stub)
        requests = [start_request(identity=LARGE) for _ in range(40)]
        for request in requests:
            await stub.StartSession(request, timeout=DEADLINE)
        found = []
        pages = 0
        token = ""
        while pages == 0 or token:
            asked = pb.ListSessionsRequest(page_size=1000, page_token=token)
            page = await stub.ListSessions(asked, timeout=DEADLINE)
            assert page.ByteSize() < 4 * 1024 * 1024
            found += [session.internal_id for session in page.sessions]
            token = page.next_page_token
            pages = pages + 1
        assert sorted(found) == sorted(each.internal_id for each in requests)
        assert pages > 1


async def test_notifies_ready_watchdog_and_stopping(tmp_path: Path) -> None:
    states: list[str] = []
    config = WholeAgent(tmp_path, "agent").config
    with a_manager(str(tmp_path / "notify")) as manager:

        def has(state: str) -> bool:
            states.extend(manager.received())
            return state in states

        supervision = Supervision(manager.address, 10.0)
        daemon = Daemon(config, FakeEngine(), FakeClock(), all_ports_free, supervision=supervision)
        work = asyncio.create_task(daemon.run(), name="agent")
        await until(lambda: has("READY=1"))
        assert daemon.serving.is_set()
        await until(lambda: has("WATCHDOG=1"))
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)
        states.extend(manager.received())
    assert states[0] == "READY=1"
    assert states[-1] == "STOPPING=1"
