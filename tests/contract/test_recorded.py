"""What programs of released formats said to each other is understood by those of today.

The bytes are in `formats/<n>/exchanges.json`: today's control plane reads in the answers what they
say, and today's agent does what that of then did when it is asked the same.
"""

from pathlib import Path
from typing import Any

import grpc
import pytest

from agent.domain.engine import container_name
from agent.rpc import wire
from agent.rpc.identity import FILE
from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.contract import (
    Answer,
    HostReported,
    HostSession,
    ImagesReported,
    SessionsReported,
    SnapshotBegin,
    SnapshotEnd,
    WatchMessage,
)
from controlplane.domain.errors import AgentRefusedError
from controlplane.domain.session_report import SessionReport
from tests.contract.byte_proxy import SERVICE
from tests.contract.exchanges import (
    ASKED,
    TIMEOUT,
    Exchange,
    Replay,
    load,
    read_by_control_plane,
)
from tests.contract.formats import EXCHANGES, FORMATS, NUMBERS, released, today
from tests.contract.previous import Contract
from tests.contract.recording import identify, record
from tests.support.agent.served import WholeAgent
from tests.support.controlplane.system import eventually
from tiltyard.agent.v1 import agent_pb2, agent_pb2_grpc

EVENTS = {
    "snapshot_begin": SnapshotBegin,
    "sessions": SessionsReported,
    "snapshot_end": SnapshotEnd,
    "host": HostReported,
    "images": ImagesReported,
    "heartbeat": type(None),
}


@pytest.fixture(params=NUMBERS)
def number(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def exchanges(number: str) -> list[Exchange]:
    return load(FORMATS / number / EXCHANGES)


def assert_complete(exchanges: list[Exchange], contract: Contract) -> None:
    """Every method is there, every kind of event, and refusals of many kinds."""
    unserved = {"ClaimSession", "SetWarmPool"}
    assert {each.method for each in exchanges} == set(contract.methods) - unserved
    assert {each.reason for each in exchanges} >= {
        *("", "SESSION_NOT_FOUND", "SESSION_LIVE", "SESSION_STOPPED", "SPEC_CONFLICT"),
        *("DRAINING", "STALE_REVISION", "PATH_NOT_FOUND", "IMAGE_IN_USE", "INVALID_ARGUMENT"),
    }
    told = [
        response for each in exchanges if each.method == "Watch" for response in each.responses
    ]
    events = {agent_pb2.WatchResponse.FromString(each).WhichOneof("event") for each in told}
    assert events >= {"snapshot_begin", "sessions", "snapshot_end", "host"}


def test_every_kind_of_call_was_recorded(number: str, exchanges: list[Exchange]) -> None:
    assert_complete(exchanges, Contract(released(number)))


async def test_the_next_format_can_be_recorded(tmp_path: Path) -> None:
    await record(tmp_path)
    assert_complete(load(tmp_path / EXCHANGES), Contract(today()))


async def test_todays_control_plane_reads_what_agents_of_then_said(
    number: str, exchanges: list[Exchange], tmp_path: Path
) -> None:
    then, replay = Contract(released(number)), Replay()
    async with replay.serving(tmp_path / "replay.sock") as address:
        client = AgentClient(address)
        for replay.now in exchanges:
            told = [then.response(replay.now.method, each) for each in replay.now.responses]
            if replay.now.reason and replay.now.method in ASKED:
                with pytest.raises(AgentRefusedError) as caught:
                    await read_by_control_plane(client, replay.now)
                assert caught.value.agent_reason.name == replay.now.reason
            else:
                read = await read_by_control_plane(client, replay.now)
                _assert_read(replay.now.method, read, told)
        await client.close()


def _assert_read(method: str, read: Any, told: list[Any]) -> None:
    """Assert that a decoded value equals the messages."""
    if isinstance(read, Answer):
        assert read.incarnation == told[0].incarnation
        _assert_session(read.session, told[0].session)
    elif isinstance(read, SessionReport):
        _assert_report(read, told[0])
    elif method == "Watch":
        for one, message in zip(read, told, strict=True):
            _assert_event(one, message)
    elif method in {"StreamLogs", "FetchArtifact"}:
        assert read == [message.data for message in told]
    elif method == "PullImage":
        steps = [message for message in told if not message.done]
        assert [one.layers for one in read] == [message.layers for message in steps]
    elif method == "RenewCertificate":
        answer = (told[0].signing_request, told[0].takes_authorities)
        assert (read.request, read.takes_authorities) == answer


def _assert_event(read: WatchMessage, told: Any) -> None:
    assert (read.incarnation, read.sequence) == (told.incarnation, told.sequence)
    kind, event = told.WhichOneof("event"), read.event
    assert isinstance(event, EVENTS[kind])
    if isinstance(event, SnapshotEnd):
        assert event.reconciled == told.snapshot_end.reconciled
    elif isinstance(event, SessionsReported):
        for session, message in zip(event.sessions, told.sessions.sessions, strict=True):
            _assert_session(session, message)
    elif isinstance(event, ImagesReported):
        assert (event.first, event.last) == (told.images.first, told.images.last)
        assert event.images == tuple(told.images.images)
    elif isinstance(event, HostReported):
        host = event.host
        for name in ("agent_id", "version", "public_address", "free_sessions", "start_slots"):
            assert getattr(host, name) == getattr(told.host, name)
        assert host.capacity.nano_cpus == told.host.capacity.nano_cpus
        assert host.reserved.memory_bytes == told.host.reserved.memory_bytes


def _assert_session(read: HostSession, told: Any) -> None:
    for name in ("internal_id", "image", "detail", "sequence", "host"):
        assert getattr(read, name) == getattr(told, name)
    for name in ("account", "session_id", "application", "tag", "external_id"):
        assert getattr(read.identity, name) == getattr(told.identity, name)
    assert bytes.fromhex(read.identity.ticket) == told.identity.ticket
    assert read.identity.labels == dict(told.identity.labels)
    assert read.injected_env == dict(told.injected_env)
    assert f"STATE_{read.state.name}" == _name(told, "state")
    assert f"END_REASON_{read.end_reason.name if read.end_reason else 'UNSPECIFIED'}" == _name(
        told, "end_reason"
    )
    assert [(port.container, port.host) for port in read.ports] == [
        (port.container_port, port.host_port) for port in told.ports
    ]
    assert read.create_ms == told.create_time.ToMilliseconds()
    assert (read.expire_ms is None) != told.HasField("expire_time")
    assert read.exit_code == (told.exit_code if told.HasField("exit_code") else None)


def _assert_report(read: SessionReport, told: Any) -> None:
    report = told.report
    assert f"STATE_{read.state.name}" == _name(report, "state")
    assert read.end_ms == report.end_time.ToMilliseconds()
    assert read.exit_code == (report.exit_code if report.HasField("exit_code") else None)
    assert len(read.timeline) == len(report.timeline)
    assert (read.log, read.log_truncated) == (told.log, told.log_truncated)


def _name(message: Any, field: str) -> str:
    """The name of a value in the contract that a message is of."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    return str(kind.values_by_number[getattr(message, field)].name)


def test_todays_agent_reads_what_control_planes_of_then_asked_for(
    number: str, exchanges: list[Exchange]
) -> None:
    then = Contract(released(number))
    starts = [each.request for each in exchanges if each.method == "StartSession"]
    for request in starts:
        told = then.request("StartSession", request).spec
        read = wire.spec_from_proto(agent_pb2.StartSessionRequest.FromString(request).spec)
        assert (read.image, read.restart) == (told.image, told.restart)
        assert (list(read.args), read.env) == (list(told.args), dict(told.env))
        assert read.ttl == (told.ttl.ToSeconds() if told.HasField("ttl") else None)
        assert f"NETWORK_MODE_{read.network_mode.name}" == _name(told, "network_mode")
        assert read.limits.memory_bytes == told.limits.memory_bytes
        assert read.reservation.nano_cpus == told.reservation.nano_cpus
        assert [(port.container, port.pinned) for port in read.ports] == [
            (port.container_port, port.pinned_host_port) for port in told.ports
        ]
        assert bytes.fromhex(read.identity.ticket) == told.identity.ticket
        assert read.identity.session_id == told.identity.session_id
        assert read.identity.labels == dict(told.identity.labels)
    assert len(starts) >= 3


async def test_todays_agent_does_what_that_of_then_did(
    exchanges: list[Exchange], tmp_path: Path
) -> None:
    """Asked the same, in the same order, it succeeds or refuses for the same reason."""
    host = WholeAgent(tmp_path, "host-1")
    host.have_every_image()
    await host.start()
    await identify(host.config.state_dir / FILE)
    try:
        async with grpc.aio.insecure_channel(host.address) as channel:
            await eventually(lambda: _is_reconciled(channel))
            outcomes = []
            for each in exchanges:
                if each.method == "GetReport" and not each.reason:
                    asked = agent_pb2.GetReportRequest.FromString(each.request)
                    await _bring_to_an_end(host, channel, asked.internal_id)
                outcomes.append((each.method, await _asked(channel, each)))
    finally:
        await host.stop()
    assert outcomes == [(each.method, each.reason) for each in exchanges]


async def _is_reconciled(channel: grpc.aio.Channel) -> bool:
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)
    found = await stub.GetHost(agent_pb2.GetHostRequest(), timeout=TIMEOUT)
    return bool(found.reconciled)


async def _bring_to_an_end(host: WholeAgent, channel: grpc.aio.Channel, internal_id: str) -> None:
    """Have a game fail that leaves a file."""
    host.engine.put_file(container_name(internal_id), "/data/replay", b"replay")
    host.engine.end(container_name(internal_id), 139)
    stub: Any = agent_pb2_grpc.AgentServiceStub(channel)

    async def has_ended() -> bool:
        asked = agent_pb2.GetSessionRequest(internal_id=internal_id)
        found = await stub.GetSession(asked, timeout=TIMEOUT)
        return bool(found.session.state == agent_pb2.STATE_EXITED)

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
