"""A half-open connection is detected by each side, over real sockets."""

import asyncio
import contextlib
import gc
from collections.abc import AsyncIterator
from pathlib import Path

import grpc
import pytest

from controlplane.agent_rpc.client import OPTIONS, AgentClient
from controlplane.domain.errors import AgentUnavailableError
from controlplane.settings.model import Config
from tests.support.agent.served import CLOCK, served
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, eventually
from tests.support.fakes import FakeEngine
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc


class Relay:
    """Relays bytes to a socket."""

    def __init__(self, target: Path) -> None:
        self._target = target
        self.carriers: set[asyncio.Task[None]] = set()
        self._writers: set[asyncio.StreamWriter] = set()
        self.connections = 0

    def drop_data(self) -> None:
        """Drop all data of current connections; new ones are relayed."""
        for carrier in self.carriers:
            carrier.cancel()

    async def take(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            there, onward = await asyncio.open_unix_connection(self._target)
        except OSError:  # no server there
            writer.close()
            return
        for source, sink in ((reader, onward), (there, writer)):
            self._writers.add(sink)
            carrier = asyncio.create_task(_carry(source, sink), name="carrier")
            self.carriers.add(carrier)
            carrier.add_done_callback(self.carriers.discard)

    async def close(self) -> None:
        self.drop_data()
        await asyncio.gather(*self.carriers, return_exceptions=True)
        for writer in self._writers:
            writer.close()


async def _carry(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(65536):
        sink.write(data)
        await sink.drain()
    sink.close()


@contextlib.asynccontextmanager
async def a_relay(path: Path, target: Path) -> AsyncIterator[Relay]:
    """Listen on a path until the context ends."""
    relay = Relay(target)
    server = await asyncio.start_unix_server(relay.take, path)
    try:
        yield relay
    finally:
        server.close()
        await relay.close()


class Relayed(System):
    """A control plane that reaches its agent through a relay."""

    @property
    def config(self) -> Config:
        config = super().config
        [agent] = config.agents
        relayed = agent.model_copy(update={"address": f"unix:{self.folder}/relay.sock"})
        return config.model_copy(update={"agents": (relayed,)})


@pytest.mark.part_alone
async def test_f41_a_host_is_heard_again_though_its_connection_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a new connection: it takes long to detect that the old one is dead."""
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 0.5)
    without_pings = tuple(
        each for each in OPTIONS if "ping" not in each[0] and "alive" not in each[0]
    )
    monkeypatch.setattr("controlplane.agent_rpc.client.OPTIONS", without_pings)
    system = Relayed(tmp_path)
    system.agent.beat = 0.1
    socket = Path(system.agent.address.removeprefix("unix:"))
    async with a_relay(tmp_path / "relay.sock", socket) as relay, system:
        link = system.link(system.agent.name)
        before = relay.connections
        # A closed channel keeps its connection until its calls are garbage-collected.
        uncollected = [
            each for each in gc.get_objects() if isinstance(each, grpc.aio.Channel | grpc.aio.Call)
        ]
        assert uncollected
        relay.drop_data()
        await eventually(lambda: relay.connections > before)
        reported_at = link.reported_at
        await eventually(lambda: link.reported_at != reported_at)
        await system.make_application()
        assert (await system.start()).status == 201


@pytest.mark.slow
@pytest.mark.part_alone
async def test_f41_an_agent_lets_go_of_a_control_plane_that_is_gone_without_a_word(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, FakeEngine(), CLOCK) as agent:
        feed, path = agent.daemon.feed, tmp_path / "relay.sock"
        async with (
            a_relay(path, agent.config.socket) as relay,
            grpc.aio.insecure_channel(f"unix:{path}") as channel,
        ):
            stream = agent_pb2_grpc.AgentServiceStub(channel).Watch(agent_pb2.WatchRequest())
            await stream.read()
            assert feed.watchers == 1
            relay.drop_data()
            await eventually(lambda: not feed.watchers)
            stream.cancel()


@pytest.mark.slow
@pytest.mark.part_alone
async def test_f41_a_call_on_a_dead_connection_ends_long_before_its_time(tmp_path: Path) -> None:
    agent = FakeAgent(tmp_path)
    agent.before_stop = agent.hang
    await agent.start()
    path = tmp_path / "relay.sock"
    async with a_relay(path, Path(agent.address.removeprefix("unix:"))) as relay:
        client = AgentClient(f"unix:{path}")
        call = asyncio.create_task(client.stop_session("i", 3600.0, discard=False), name="call")
        await eventually(lambda: relay.connections == 1 and bool(relay.carriers))
        relay.drop_data()
        with pytest.raises(AgentUnavailableError):
            await call
        await client.close()
    await agent.stop()
