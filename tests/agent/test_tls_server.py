"""Only the control plane may call an agent over a network."""

import asyncio
import os
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.rpc.identity import FILE, Identity
from agent.rpc.signing import check
from agent.rpc.tls_server import MAX_CONNECTIONS, NETWORK_OPTIONS, Certificates
from tests.support.agent.hosts import until
from tests.support.agent.served import WholeAgent
from tests.support.certificates import CALLS, CONTROL_PLANE, SERVES, Party, Signer, self_signed
from tests.support.fake_engine import FakeEngine
from tests.support.harness import free_port
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.agent.v1 import agent_pb2_grpc

HOST = "one.agent.tiltyard.internal"
URI = "tiltyard://agent/one"
DEADLINE = 20.0
TOO_MANY = MAX_CONNECTIONS + 8

OURS = Signer.new("ours")
CALLER = OURS.sign(CALLS, [CONTROL_PLANE])


def an_identity(life: timedelta = timedelta(hours=1)) -> Identity:
    party = OURS.sign(SERVES, [URI], [HOST], life)
    return Identity(party.key, party.certificate, OURS.certificate)


class Listening(WholeAgent):
    """An agent with `rpc_listen`."""

    @property
    def identity_file(self) -> Path:
        return self.config.state_dir / FILE

    @asynccontextmanager
    async def called_by(
        self, party: Party | None, trusting: bytes = OURS.certificate
    ) -> AsyncIterator[Any]:
        pair = (party.key, party.certificate) if party else (None, None)
        shown = grpc.ssl_channel_credentials(trusting, *pair)
        options = [("grpc.ssl_target_name_override", HOST)]
        async with grpc.aio.secure_channel(self.config.rpc_listen, shown, options) as channel:
            yield agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call,unused-ignore]

    async def answers(self, party: Party | None, **more: Any) -> grpc.StatusCode:
        """Call the agent and return the status."""
        async with self.called_by(party, **more) as stub:
            try:
                await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)
            except grpc.aio.AioRpcError as error:
                return error.code()
            return grpc.StatusCode.OK

    async def warnings(self) -> list[str]:
        """Return the warnings of its status, read over its unix socket."""
        async with grpc.aio.insecure_channel(f"unix:{self.config.socket}") as channel:
            stub: Any = agent_pb2_grpc.AgentServiceStub(channel)  # type: ignore[no-untyped-call,unused-ignore]
            return list((await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)).host.warnings)

    async def is_open(self) -> None:
        await self.daemon.tls_server.serving.wait()


@asynccontextmanager
async def listening(
    folder: Path, engine: FakeEngine, *, enrolled: bool, port: int | None = None
) -> AsyncIterator[Listening]:
    address = f"127.0.0.1:{port or free_port()}"
    agent = Listening(folder, "agent", engine=engine, rpc_listen=address)
    if enrolled:
        await asyncio.to_thread(an_identity().save, agent.identity_file)
    async with agent:
        yield agent


@pytest.fixture(autouse=True)
def impatience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("agent.rpc.service.HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr("agent.rpc.tls_server.RETRY_SECONDS", 0.02)


@pytest.fixture
async def agent(tmp_path: Path, engine: FakeEngine) -> AsyncIterator[Listening]:
    async with listening(tmp_path, engine, enrolled=True) as running:
        await running.is_open()
        yield running


STRANGERS: dict[str, Callable[[], Party | None]] = {
    "a caller without a certificate": lambda: None,
    "an agent": lambda: OURS.sign(SERVES, [URI], [HOST]),
    "an agent that calls itself the control plane": lambda: OURS.sign(SERVES, [CONTROL_PLANE]),
    "an expired caller": lambda: OURS.sign(CALLS, [CONTROL_PLANE], life=timedelta(hours=-1)),
    "a self-signed caller": lambda: self_signed(CALLS, [CONTROL_PLANE]),
    "another authority's caller": lambda: Signer.new("ours").sign(CALLS, [CONTROL_PLANE]),
}
NAMELESS: dict[str, Party] = {
    "an agent with the use of a caller": OURS.sign(CALLS, [URI]),
    "two names": OURS.sign(CALLS, [CONTROL_PLANE, URI]),
    "a longer name": OURS.sign(CALLS, [f"{CONTROL_PLANE}/x"]),
    "a DNS name": OURS.sign(CALLS, hosts=["controlplane"]),
}


@pytest.mark.parametrize("kind", STRANGERS)
async def test_rejects_strangers(agent: Listening, kind: str) -> None:
    assert await agent.answers(STRANGERS[kind]()) is grpc.StatusCode.UNAVAILABLE
    assert await agent.answers(CALLER) is grpc.StatusCode.OK


@pytest.mark.parametrize("kind", NAMELESS)
async def test_rejects_caller_with_another_name(agent: Listening, kind: str) -> None:
    assert await agent.answers(NAMELESS[kind]) is grpc.StatusCode.PERMISSION_DENIED


async def test_rejects_caller_with_another_name_on_every_method(agent: Listening) -> None:
    methods = pb.DESCRIPTOR.services_by_name["AgentService"].methods_by_name
    async with agent.called_by(NAMELESS["an agent with the use of a caller"]) as stub:
        for method in methods:
            request = getattr(pb, f"{method}Request")()
            sent = iter([request]) if methods[method].client_streaming else request
            call = getattr(stub, method)(sent, timeout=DEADLINE)
            assert await call.code() is grpc.StatusCode.PERMISSION_DENIED, method
            assert "control plane" in await call.details()


async def test_serves_after_late_enrolment_without_restart(
    tmp_path: Path, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(tmp_path, engine, enrolled=False) as agent:
        await until(lambda: "not enrolled" in caplog.text)
        await asyncio.to_thread(an_identity().save, agent.identity_file)
        await agent.is_open()
        assert await agent.answers(CALLER) is grpc.StatusCode.OK
        assert caplog.text.count("not enrolled") == 1


async def test_waits_for_port_in_use(
    tmp_path: Path, engine: FakeEngine, caplog: pytest.LogCaptureFixture
) -> None:
    with socket.socket() as taken:
        port = free_port()
        # free_port() looks with this option, too.
        taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        taken.bind(("127.0.0.1", port))
        taken.listen()
        async with listening(tmp_path, engine, enrolled=True, port=port) as agent:
            await until(lambda: "not serving yet" in caplog.text)
            begin = f"not serving at 127.0.0.1:{port}: cannot listen there"
            assert [each for each in await agent.warnings() if each.startswith(begin)]
            taken.close()
            await agent.is_open()
            assert not [each for each in await agent.warnings() if "not serving" in each]
            assert await agent.answers(CALLER) is grpc.StatusCode.OK


async def test_new_certificate_is_for_new_connections_and_keeps_open_ones(
    agent: Listening,
) -> None:
    async with agent.called_by(CALLER) as old:
        watch = old.Watch(pb.WatchRequest(), timeout=DEADLINE)
        assert (await watch.read()).HasField("snapshot_begin")
        other = Signer.new("after")
        party = other.sign(SERVES, [URI], [HOST])
        identity = Identity(party.key, party.certificate, other.certificate)
        await asyncio.to_thread(identity.save, agent.identity_file)
        new_caller = other.sign(CALLS, [CONTROL_PLANE])
        assert await agent.answers(new_caller, trusting=other.certificate) is grpc.StatusCode.OK
        assert await agent.answers(CALLER) is grpc.StatusCode.UNAVAILABLE
        heartbeat = False
        while not heartbeat:  # the stream continues
            heartbeat = (await watch.read()).HasField("heartbeat")
        watch.cancel()


async def test_stop_ends_watch_streams_over_tls(
    agent: Listening, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.rpc.tls_server.GRACE_SECONDS", 20.0)
    async with agent.called_by(CALLER) as stub:
        watch = stub.Watch(pb.WatchRequest(), timeout=DEADLINE)
        while not (await watch.read()).HasField("heartbeat"):
            pass
        stopping = asyncio.create_task(agent.stop(), name="stopping")
        while await watch.read() is not grpc.aio.EOF:
            pass
        assert await watch.code() is grpc.StatusCode.OK
        await stopping


async def test_keeps_last_identity_if_new_one_is_damaged(
    agent: Listening, caplog: pytest.LogCaptureFixture
) -> None:
    await asyncio.to_thread(agent.identity_file.write_bytes, b"nothing")
    assert await agent.answers(CALLER) is grpc.StatusCode.OK
    assert await agent.answers(CALLER) is grpc.StatusCode.OK
    assert caplog.text.count("keeping the previous certificate") == 1


async def test_retries_unreadable_identity(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Like a file that is restored from a backup and changes its owner afterwards."""
    path = tmp_path / FILE
    await asyncio.to_thread(an_identity().save, path)
    certificates = Certificates(path)

    def refused(path: Path) -> Identity:
        raise PermissionError(path)

    with monkeypatch.context() as patched:
        patched.setattr(Identity, "read", refused)
        assert await asyncio.to_thread(certificates.newer) is None
    assert await asyncio.to_thread(certificates.newer) is None  # unchanged
    await asyncio.to_thread(path.chmod, 0o400)
    assert await asyncio.to_thread(certificates.newer) is not None


async def test_strangers_cannot_exhaust_open_files(
    tmp_path: Path, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An idle client holds a connection until the handshake times out."""
    never = {"grpc.server_handshake_timeout_ms": 600_000}
    monkeypatch.setattr(
        "agent.rpc.tls_server.NETWORK_OPTIONS", tuple((dict(NETWORK_OPTIONS) | never).items())
    )
    async with listening(tmp_path, engine, enrolled=True) as agent:
        await agent.is_open()
        host, _, port = agent.config.rpc_listen.partition(":")
        async with agent.called_by(CALLER) as stub:
            await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)
            opened = [await asyncio.open_connection(host, int(port)) for _ in range(TOO_MANY)]
            idle = {asyncio.create_task(reader.read()) for reader, _ in opened}
            while len(idle) >= MAX_CONNECTIONS:  # includes that of the control plane
                _, idle = await asyncio.wait(idle, return_when=asyncio.FIRST_COMPLETED)
            await stub.GetHost(pb.GetHostRequest(), timeout=DEADLINE)
        for _, writer in opened:
            writer.close()
        await asyncio.wait(idle)
        while await agent.answers(CALLER) is not grpc.StatusCode.OK:
            pass


def test_identity_is_readable_by_owner_only(tmp_path: Path) -> None:
    path = tmp_path / "state" / FILE
    identity = an_identity()
    identity.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert Identity.read(path) == identity
    assert check(identity, time.time()) == URI
    assert "PRIVATE" not in repr(identity)


@pytest.mark.root
def test_agent_can_read_identity_enrolled_by_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "state"
    folder.mkdir()
    os.chown(folder, 65534, 65534)
    owners = []
    replace = Path.replace

    def watched(beside: Path, path: Path) -> Path:
        owners.append(beside.stat().st_uid)
        return replace(beside, path)

    monkeypatch.setattr(Path, "replace", watched)
    an_identity().save(folder / FILE)
    assert (folder / FILE).stat().st_uid == 65534
    assert owners == [65534]  # a running agent may read it at any time
