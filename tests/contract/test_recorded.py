"""What programs of released formats said to each other is understood by those of today.

The bytes are in `formats/<n>/exchanges.json`: today's control plane reads in the answers what they
say, and today's agent does what that of then did when it is asked the same.
"""

import asyncio
import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.domain.containers.engine import container_name
from agent.rpc import wire
from agent.rpc.identity import FILE
from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import AgentRefusedError
from controlplane.domain.hosts.contract import (
    HostReport,
    ImagesReported,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
)
from tests.agent.writing import identify
from tests.contract.byte_proxy import SERVICE
from tests.contract.exchanges import ASKED, TIMEOUT, Exchange, Replay, load, read_by_control_plane
from tests.contract.formats import EXCHANGES, FORMATS, NUMBERS, released, today
from tests.contract.previous import Contract
from tests.contract.recording import record
from tests.contract.test_generated_code import screaming
from tests.support.agent.served import CLOCK, WholeAgent
from tests.support.controlplane.system import eventually
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

EVENTS = {
    "snapshot_begin": SnapshotBegin,
    "sessions": SessionsReported,
    "snapshot_end": SnapshotEnd,
    "host": HostReport,
    "images": ImagesReported,
    "heartbeat": type(None),
}
SPELLED = {
    "container": "container_port",
    "cpu_seconds": "cpu_time",
    "delay": "restart_delay",
    "host": "host_port",
    "pinned": "pinned_host_port",
    # These are not in the message itself, or not in those of then.
    "capabilities": "",
    "contiguous": "",
    "drain": "",
    "failure_time": "",
    "forced": "",
    "free_image_bytes": "",
    "has_run": "",
    "image_init": "",
    "images": "",
    "log": "",
    "log_damaged": "",
    "log_truncated": "",
    "platform": "",
    "limits_met": "",
    "pids": "",
    "prepared": "",
    "same": "",
    "state_time": "",
    "shm_bytes": "",
    "size": "",
    "sizes": "",
    "stop": "",
    "stop_grace": "",
    "stop_signal": "",
    "traceparent": "",
    "written": "",
}
"""The fields of messages that have other names than those of the values."""


@pytest.fixture(params=NUMBERS)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def exchanges(number: str) -> list[Exchange]:
    return load(FORMATS / number / EXCHANGES)


def assert_complete(exchanges: list[Exchange], contract: Contract) -> None:
    """Every method is there, every kind of event, and refusals of many kinds."""
    unserved = {"ClaimSessions", "SetWarmPool"}
    assert {each.method for each in exchanges} == set(contract.methods) - unserved
    assert {each.reason for each in exchanges} >= {
        "",
        "SESSION_NOT_FOUND",
        "SESSION_LIVE",
        "SESSION_STOPPED",
        "SPEC_CONFLICT",
        "DRAINING",
        "STALE_REVISION",
        "PATH_NOT_FOUND",
        "IMAGE_IN_USE",
        "INVALID_ARGUMENT",
    }
    sent = [
        response for each in exchanges if each.method == "Watch" for response in each.responses
    ]
    events = {agent_pb2.WatchResponse.FromString(each).WhichOneof("event") for each in sent}
    assert events >= {"snapshot_begin", "sessions", "snapshot_end", "host"}


def test_every_kind_of_call_was_recorded(number: str, exchanges: list[Exchange]) -> None:
    assert_complete(exchanges, Contract(released(number)))


async def test_the_next_format_can_be_recorded(tmp_path: Path) -> None:
    await record(tmp_path)
    assert_complete(load(tmp_path / EXCHANGES), Contract(today()))


async def test_todays_control_plane_reads_what_agents_of_then_said(
    number: str, exchanges: list[Exchange], tmp_path: Path
) -> None:
    then = Contract(released(number))
    replay = Replay()
    async with replay.serving(tmp_path / "replay.sock") as address:
        client = AgentClient(address)
        for replay.now in exchanges:
            sent = [then.response(replay.now.method, each) for each in replay.now.responses]
            if replay.now.reason and replay.now.method in ASKED:
                with pytest.raises(AgentRefusedError) as caught:
                    await read_by_control_plane(client, replay.now)
                assert caught.value.agent_reason.name == replay.now.reason
            else:
                read = await read_by_control_plane(client, replay.now)
                _assert_read(replay.now.method, read, sent)
        await client.close()


def _assert_read(method: str, read: Any, sent: list[Any]) -> None:
    """Assert that decoded values say what the messages say."""
    if method == "Watch":
        for found, message in zip(read, sent, strict=True):
            assert found.incarnation == message.incarnation
            assert found.sequence == message.sequence
            kind = message.WhichOneof("event")
            assert isinstance(found.event, EVENTS[kind])
            if found.event is not None:
                _assert_says(found.event, getattr(message, kind))
    elif method in {"StreamLogs", "FetchArtifact"}:
        assert read == [message.data for message in sent]
    elif method == "PullImage":
        steps = [message for message in sent if not message.done]
        assert [progress.layers for progress in read] == [message.layers for message in steps]
    elif method == "GetReport":
        _assert_says(read, sent[0].report)
        assert read.log == sent[0].log
        assert read.log_truncated == sent[0].log_truncated
    elif method == "RenewCertificate":
        assert read.request == sent[0].signing_request
        assert read.takes_authorities == sent[0].takes_authorities
    elif read is not None:
        _assert_says(read, sent[0])


def _assert_says(read: Any, message: Any) -> None:
    """Assert that a value has what a message has in the fields of the same names."""
    fields = message.DESCRIPTOR.fields_by_name
    for own in dataclasses.fields(read):
        name = own.name if own.name in fields else SPELLED[own.name]
        if name:
            _assert_field(getattr(read, own.name), message, fields[name])


def _assert_field(value: Any, message: Any, field: Any) -> None:
    sent = getattr(message, field.name)
    if dataclasses.is_dataclass(value):
        _assert_says(value, sent)
    elif field.enum_type:
        prefix = f"{screaming(field.enum_type.name)}_"
        name = field.enum_type.values_by_number[sent].name
        assert name == prefix + (value.name if value else "UNSPECIFIED")
    elif isinstance(value, Mapping):
        assert value == dict(sent)
    elif isinstance(value, tuple) and field.message_type:
        for part, sent_part in zip(value, sent, strict=True):
            _assert_says(part, sent_part)
    elif isinstance(value, tuple):
        assert value == tuple(sent)
    elif isinstance(value, frozenset):
        assert value == frozenset(sent)
    elif value is None:
        assert not message.HasField(field.name)
    elif field.message_type:
        assert value in {sent.ToMilliseconds() / 1000, sent.ToSeconds()}
    else:
        assert value == (sent.hex() if isinstance(sent, bytes) else sent)


def test_todays_agent_reads_what_control_planes_of_then_asked_for(
    number: str, exchanges: list[Exchange]
) -> None:
    then = Contract(released(number))
    starts = [each.request for each in exchanges if each.method == "StartSession"]
    for request in starts:
        read = wire.spec_from_proto(agent_pb2.StartSessionRequest.FromString(request).spec)
        _assert_says(read, then.request("StartSession", request).spec)
    assert len(starts) >= 3


async def test_todays_agent_does_what_that_of_then_did(
    exchanges: list[Exchange], tmp_path: Path
) -> None:
    """Asked the same, in the same order, it succeeds or refuses for the same reason."""
    host = WholeAgent(tmp_path, "host-1")
    await host.start()
    await asyncio.to_thread(identify, host.config.state_dir / FILE, CLOCK.time())
    try:
        async with grpc.aio.insecure_channel(host.address) as channel:
            await eventually(lambda: host.daemon.sessions.reconciled)
            outcomes = []
            for each in exchanges:
                if each.method == "GetReport" and not each.reason:
                    asked = agent_pb2.GetReportRequest.FromString(each.request)
                    await _bring_to_an_end(host, channel, asked.internal_id)
                outcomes.append((each.method, await _asked(channel, each)))
    finally:
        await host.stop()
    assert outcomes == [(each.method, each.reason) for each in exchanges]


async def _bring_to_an_end(host: WholeAgent, channel: grpc.aio.Channel, internal_id: str) -> None:
    """Have a game fail that leaves a file."""
    host.engine.find(container_name(internal_id)).put_file("/data/replay", b"replay")
    host.engine.end(container_name(internal_id), 139)
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)

    async def has_ended() -> bool:
        listed = await stub.ListSessions(agent_pb2.ListSessionsRequest(), timeout=TIMEOUT)
        states = {each.internal_id: each.state for each in listed.sessions}
        return bool(states[internal_id] == agent_pb2.STATE_EXITED)

    await eventually(has_ended)


async def _asked(channel: grpc.aio.Channel, exchange: Exchange) -> str:
    """Why a call failed; nothing when it succeeded."""
    call: Any = channel.unary_stream(f"/{SERVICE}/{exchange.method}")
    answers = call(exchange.request, timeout=TIMEOUT)
    try:
        async for _ in answers:
            if exchange.method == "Watch":
                break  # it never ends
    except grpc.aio.AioRpcError as error:
        return str(dict(error.trailing_metadata() or ())["tiltyard-error-reason"])
    finally:
        answers.cancel()
    return ""
