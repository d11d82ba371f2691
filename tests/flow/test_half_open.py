"""A half-open connection is detected by each side, over real sockets."""

import asyncio
import gc
from pathlib import Path

import grpc
import pytest

from controlplane.agent_rpc.client import OPTIONS, AgentClient
from controlplane.domain.errors import AgentUnavailableError
from tests.flow.relay import RELAY, Relayed, a_relay
from tests.support.agent.served import CLOCK, served
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import eventually
from tests.support.fake_engine import FakeEngine
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc


@pytest.mark.part_alone
async def test_f41_a_host_is_heard_again_though_its_connection_is_dead(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a new connection: it takes long to detect that the old one is dead."""
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 0.5)
    no_pings = tuple(each for each in OPTIONS if "ping" not in each[0] and "alive" not in each[0])
    monkeypatch.setattr("controlplane.agent_rpc.client.OPTIONS", no_pings)
    system = Relayed(tmp_path)
    system.agent.beat = 0.1
    socket = Path(system.agent.address.removeprefix("unix:"))
    async with a_relay(tmp_path / RELAY, socket) as relay, system:
        link = system.link(system.agent.name)
        before = relay.connections
        # A closed channel keeps its connection until its calls are garbage-collected.
        uncollected = [
            each for each in gc.get_objects() if isinstance(each, grpc.aio.Channel | grpc.aio.Call)
        ]
        assert uncollected
        relay.drop_data()
        await eventually(lambda: relay.connections > before)
        reported_at = link.state.reported_at
        await eventually(lambda: link.state.reported_at != reported_at)
        await system.make_application()
        assert (await system.start()).status == 201


@pytest.mark.slow
@pytest.mark.part_alone
async def test_f41_an_agent_lets_go_of_a_control_plane_that_is_gone_without_a_word(
    tmp_path: Path,
) -> None:
    async with served(tmp_path, FakeEngine(), CLOCK) as agent:
        feed = agent.daemon.feed
        path = tmp_path / RELAY
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
    path = tmp_path / RELAY
    async with a_relay(path, Path(agent.address.removeprefix("unix:"))) as relay:
        client = AgentClient(f"unix:{path}")
        call = asyncio.create_task(client.stop_session("i", 3600.0, discard=False), name="call")
        await eventually(lambda: relay.connections == 1 and bool(relay.carriers))
        relay.drop_data()
        with pytest.raises(AgentUnavailableError):
            await call
        await client.close()
    await agent.stop()
