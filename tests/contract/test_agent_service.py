"""The agent over its unix socket, as a control plane and the debug commands see it."""

import asyncio
import contextlib
import dataclasses
from functools import partial
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from agent.domain.errors import AgentError
from agent.rpc.statuses import GRPC_CODES
from tests.support.agent.claiming import claimed, reason_of
from tests.support.agent.samples import IMAGE, an_id
from tests.support.fake_engine import FakeEngine
from tiltyard.agent.v1 import agent_pb2 as pb
from tiltyard.contract import ErrorReason

DEADLINE = 60.0
POLL = 0.01  # Seconds between two calls that wait for a change, which leave the agent time


def start_request(**changes: Any) -> pb.StartSessionRequest:
    spec = pb.SessionSpec(
        format=1,
        identity=pb.Identity(account="acme", session_id="m1", application="game", tag="v1"),
        image=IMAGE,
        network_mode=pb.NETWORK_MODE_BRIDGE,
        reservation=pb.Resources(nano_cpus=10**8, memory_bytes=2**25),
        limits=pb.Resources(nano_cpus=10**9, memory_bytes=2**26),
        ports=[pb.PortRequest(container_port=7777, protocol=pb.PROTOCOL_UDP)],
    )
    for name, value in changes.items():
        spec.ClearField(name)  # type: ignore[arg-type]
        if value is not None:
            spec.MergeFrom(pb.SessionSpec(**{name: value}))
    return pb.StartSessionRequest(internal_id=an_id(), spec=spec)


async def ended(call: Any) -> None:
    """Wait for the answer of a call, or for the last one of a stream."""
    if hasattr(call, "__aiter__"):
        async for _ in call:
            pass
    else:
        await call


async def refused(call: Any) -> str:
    """The reason of a refusal; the status fits it."""
    with pytest.raises(grpc.aio.AioRpcError) as error:
        await ended(call)
    metadata: Any = error.value.trailing_metadata()
    reason = str(dict(metadata)["tiltyard-error-reason"])
    assert error.value.code() is GRPC_CODES[ErrorReason[reason]]
    return reason


def test_reasons_mirror_the_proto_and_each_has_a_status() -> None:
    proto = {name.removeprefix("ERROR_REASON_") for name in pb.ErrorReason.keys()}  # noqa: SIM118 - an enum's wrapper is no mapping
    assert proto == {"UNSPECIFIED", *ErrorReason.__members__}
    assert set(GRPC_CODES) == set(ErrorReason)


def test_every_error_fills_its_template() -> None:
    kinds = [AgentError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        values = [0 for _ in dataclasses.fields(kind)]
        assert str(kind(*values))
    assert len(kinds) > 30, "they are not found"


async def test_every_method_is_offered(stub: Any) -> None:
    methods = set(pb.DESCRIPTOR.services_by_name["AgentService"].methods_by_name)
    refusals = set()
    for method in methods:
        request = getattr(pb, f"{method}Request")()
        call = getattr(stub, method)(iter([request]) if method == "ClaimSessions" else request)
        if method == "Watch":
            await call.read()
            call.cancel()
            continue
        try:
            await ended(call)
        except grpc.aio.AioRpcError as error:
            refusals.add(error.code())
    assert grpc.StatusCode.UNIMPLEMENTED not in refusals


async def test_a_session_from_start_to_end(stub: Any, engine: FakeEngine) -> None:
    started = (await stub.StartSession(start_request())).session
    assert started.state == pb.STATE_RUNNING
    assert started.ports[0].host_port == 20000
    assert started.host == "192.0.2.1"
    engine.write_log(f"tiltyard-{started.internal_id}", b"hello\n")
    engine.find(f"tiltyard-{started.internal_id}").put_file("/data/save.json", b"{}")
    fetch = pb.FetchArtifactRequest(internal_id=started.internal_id, path="/data/save.json")
    assert await refused(stub.FetchArtifact(fetch)) == "SESSION_LIVE"
    stop = pb.StopSessionRequest(internal_id=started.internal_id)
    stopped = (await stub.StopSession(stop)).session
    assert stopped.state == pb.STATE_EXITED
    assert stopped.end_reason == pb.END_REASON_STOPPED
    log = stub.StreamLogs(pb.StreamLogsRequest(internal_id=started.internal_id))
    assert b"".join([chunk.data async for chunk in log]) == b"hello\n"
    assert b"".join([c.data async for c in stub.FetchArtifact(fetch)]).startswith(b"\x1f\x8b")
    missing = pb.FetchArtifactRequest(internal_id=started.internal_id, path="/none")
    assert await refused(stub.FetchArtifact(missing)) == "PATH_NOT_FOUND"


@pytest.mark.parametrize("reason", [pb.END_REASON_OOM, pb.END_REASON_TTL, pb.END_REASON_EXITED])
async def test_a_stop_for_a_reason_that_only_the_host_can_know_is_refused(
    stub: Any, reason: pb.EndReason.ValueType
) -> None:
    started = (await stub.StartSession(start_request())).session
    stop = pb.StopSessionRequest(internal_id=started.internal_id, reason=reason)
    assert await refused(stub.StopSession(stop)) == "INVALID_ARGUMENT"
    [session] = (await stub.ListSessions(pb.ListSessionsRequest())).sessions
    assert session.state == pb.STATE_RUNNING


@pytest.mark.parametrize("signal", ["SIGKILL", "9", "STOP", "SIGNONE"])
async def test_a_signal_that_asks_no_program_to_end_is_refused(stub: Any, signal: str) -> None:
    assert (
        await refused(stub.StartSession(start_request(stop_signal=signal))) == "INVALID_ARGUMENT"
    )


@pytest.mark.parametrize(
    "limit",
    [
        {"pids": 15},
        {"pids": 32_769},
        {"shm_bytes": -1},
    ],
)
async def test_a_limit_that_no_session_can_have_is_refused(
    stub: Any, limit: dict[str, int]
) -> None:
    assert await refused(stub.StartSession(start_request(**limit))) == "INVALID_ARGUMENT"


async def test_a_negative_grace_period_is_refused(stub: Any) -> None:
    request = start_request(stop_grace=Duration(seconds=-1))
    assert await refused(stub.StartSession(request)) == "INVALID_ARGUMENT"


async def until_sealed(stub: Any, internal_id: str) -> None:
    """Wait until the log of a session is sealed."""
    while True:
        listed = (await stub.ListSessions(pb.ListSessionsRequest())).sessions
        if internal_id in {each.internal_id for each in listed if each.log_sealed}:
            return
        await asyncio.sleep(POLL)


async def test_a_live_session_has_no_report(stub: Any) -> None:
    started = (await stub.StartSession(start_request())).session
    request = pb.GetReportRequest(internal_id=started.internal_id)
    assert await refused(stub.GetReport(request)) == "SESSION_LIVE"


async def test_a_report_tells_how_a_session_ended(stub: Any, engine: FakeEngine) -> None:
    started = (await stub.StartSession(start_request())).session
    engine.end(f"tiltyard-{started.internal_id}", 139)
    await until_sealed(stub, started.internal_id)
    request = pb.GetReportRequest(internal_id=started.internal_id)
    report = (await stub.GetReport(request)).report
    assert report.format == 1
    assert report.internal_id == started.internal_id
    assert report.end_reason == pb.END_REASON_EXITED
    assert report.exit_code == 139
    assert report.signal == 11
    states = [pb.STATE_CREATED, pb.STATE_RUNNING, pb.STATE_EXITED]
    assert [moment.state for moment in report.timeline] == states


async def test_a_report_has_the_end_of_a_long_log(stub: Any, engine: FakeEngine) -> None:
    started = (await stub.StartSession(start_request())).session
    engine.write_log(f"tiltyard-{started.internal_id}", b"hello\n" + b"x" * 2**20 + b"\nbye\n")
    engine.end(f"tiltyard-{started.internal_id}", 0)
    await until_sealed(stub, started.internal_id)
    answer = await stub.GetReport(pb.GetReportRequest(internal_id=started.internal_id))
    assert answer.log == b"bye\n"
    assert answer.log_truncated


async def test_a_report_outlives_its_container(stub: Any, engine: FakeEngine) -> None:
    started = (await stub.StartSession(start_request())).session
    engine.write_log(f"tiltyard-{started.internal_id}", b"hello\n")
    engine.end(f"tiltyard-{started.internal_id}", 3)
    await until_sealed(stub, started.internal_id)
    request = pb.GetReportRequest(internal_id=started.internal_id)
    before = await stub.GetReport(request)
    assert before.log == b"hello\n"
    await engine.remove(f"tiltyard-{started.internal_id}")
    assert await stub.GetReport(request) == before


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2},
        {"image": "game:latest"},
        {"image": "game"},
        {"network_mode": None},
        {"reservation": None},
        {"limits": pb.Resources(nano_cpus=1, memory_bytes=1)},
        {"identity": None},
        {"env": {"A=B": "x"}},
        {"env": {"": "x"}},
        {"env": {"A": "\0"}},
        {"env": {"TILTYARD_HOST": "x"}},
        {"env": {"A": "x" * 128 * 1024}},
        {"env": {f"A{number}": "x" * 100_000 for number in range(11)}},
        {"args": ["\0"]},
        {"ports": [pb.PortRequest(container_port=0, protocol=pb.PROTOCOL_UDP)]},
        {"ports": [pb.PortRequest(container_port=70000, protocol=pb.PROTOCOL_UDP)]},
        {"ports": [pb.PortRequest(container_port=1)]},
        {"ports": [pb.PortRequest(container_port=1, protocol=pb.PROTOCOL_UDP)] * 2},
        {
            "ports": [
                pb.PortRequest(container_port=n, protocol=pb.PROTOCOL_UDP) for n in range(1, 34)
            ]
        },
        {"ports": [pb.PortRequest(container_port=1, protocol=pb.PROTOCOL_UDP, tls=True)]},
        {
            "ports": [
                pb.PortRequest(container_port=1, protocol=pb.PROTOCOL_TCP, tls=True, same=True)
            ]
        },
    ],
    ids=lambda changes: f"{changes!s:.50}",
)
async def test_a_bad_spec_is_refused(stub: Any, changes: dict[str, Any]) -> None:
    assert await refused(stub.StartSession(start_request(**changes))) == "INVALID_ARGUMENT"
    assert not (await stub.ListSessions(pb.ListSessionsRequest())).sessions


POOL = "aaaaaaaa-0000-4000-8000-000000000000"


def pool_request(size: int, revision: int = 1, **changes: Any) -> pb.SetWarmPoolRequest:
    spec = start_request(**changes).spec
    spec.identity.ClearField("session_id")  # each standby has its own
    return pb.SetWarmPoolRequest(pool_id=POOL, revision=revision, size=size, spec=spec)


async def test_a_host_reports_its_pools(stub: Any) -> None:
    for revision, size in ((3, 2), (4, 1), (5, 0)):
        await stub.SetWarmPool(pool_request(size, revision))
        host = (await stub.GetHost(pb.GetHostRequest())).host
        assert list(host.warm_pools) == [pb.WarmPool(pool_id=POOL, revision=revision, size=size)]


async def test_an_order_of_another_lifetime_keeps_the_standbys(stub: Any) -> None:
    await stub.SetWarmPool(pool_request(1, ttl=Duration(seconds=60)))
    [standby] = await until_standbys(stub, 1)
    await stub.SetWarmPool(pool_request(2, 2, ttl=Duration(seconds=90)))
    standbys = await until_standbys(stub, 2)
    assert standby.internal_id in {each.internal_id for each in standbys}
    assert {each.warm_pool_revision for each in standbys} == {1}


async def until_standbys(stub: Any, count: int) -> list[pb.Session]:
    """Return the live standbys once there are as many."""
    while True:
        listed = await stub.ListSessions(pb.ListSessionsRequest(live_only=True))
        standbys = [each for each in listed.sessions if each.warm_pool == POOL]
        if len(standbys) == count:
            return standbys
        await asyncio.sleep(POLL)


@pytest.mark.parametrize(
    "order",
    [
        pb.SetWarmPoolRequest(pool_id="x", revision=1),
        pb.SetWarmPoolRequest(pool_id=POOL, revision=1, size=1),
        pool_request(1, env={"TILTYARD_HOST": "x"}),
        pool_request(1, image="game:latest"),
    ],
    ids=["pool_id", "spec", "env", "image"],
)
async def test_an_order_that_does_not_fit_is_refused(
    stub: Any, order: pb.SetWarmPoolRequest
) -> None:
    assert await refused(stub.SetWarmPool(order)) == "INVALID_ARGUMENT"


IDENTITY = pb.Identity(account="acme", session_id="m1", application="game")


@pytest.mark.parametrize(
    "claim",
    [
        pb.Claim(internal_id="x", identity=IDENTITY),
        pb.Claim(internal_id=an_id()),
        pb.Claim(internal_id=an_id(), identity=IDENTITY, ttl=Duration()),
        pb.Claim(internal_id=an_id(), identity=IDENTITY, request_json="{"),
    ],
    ids=["internal_id", "identity", "ttl", "request_json"],
)
async def test_a_claim_that_does_not_fit_is_refused(stub: Any, claim: pb.Claim) -> None:
    assert reason_of(await claimed(stub, claim)) == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("method", "request_of"),
    [
        ("StopSession", pb.StopSessionRequest),
        ("StreamLogs", pb.StreamLogsRequest),
        ("GetReport", pb.GetReportRequest),
        ("GetBindings", pb.GetBindingsRequest),
        ("FetchArtifact", partial(pb.FetchArtifactRequest, path="/x")),
    ],
    ids=["StopSession", "StreamLogs", "GetReport", "GetBindings", "FetchArtifact"],
)
async def test_an_unknown_session_is_not_found(stub: Any, method: str, request_of: Any) -> None:
    call = getattr(stub, method)(request_of(internal_id=an_id()))
    assert await refused(call) == "SESSION_NOT_FOUND"


async def test_a_start_is_answered_with_the_incarnation_of_the_agent(stub: Any) -> None:
    host = await stub.GetHost(pb.GetHostRequest())
    assert (await stub.StartSession(start_request())).incarnation == host.incarnation


async def test_a_stop_is_answered_with_the_incarnation_of_the_agent(stub: Any) -> None:
    host = await stub.GetHost(pb.GetHostRequest())
    started = (await stub.StartSession(start_request())).session
    stop = pb.StopSessionRequest(internal_id=started.internal_id)
    assert (await stub.StopSession(stop)).incarnation == host.incarnation


async def test_claims_are_answered_with_the_incarnation_of_the_agent(stub: Any) -> None:
    host = await stub.GetHost(pb.GetHostRequest())
    claims = stub.ClaimSessions()
    claim = pb.Claim(internal_id=an_id(), identity=IDENTITY)
    await claims.write(pb.ClaimSessionsRequest(claims=[claim]))
    response = await claims.read()
    claims.cancel()
    assert host.incarnation
    assert response.incarnation == host.incarnation


async def test_a_negative_page_size_is_refused(stub: Any) -> None:
    request = pb.ListSessionsRequest(page_size=-1)
    assert await refused(stub.ListSessions(request)) == "INVALID_ARGUMENT"


async def test_a_list_comes_in_pages(stub: Any) -> None:
    requests = [start_request() for _ in range(5)]
    for request in requests:
        await stub.StartSession(request)
    found = []
    token = ""
    while True:
        page = await stub.ListSessions(pb.ListSessionsRequest(page_size=2, page_token=token))
        found += [session.internal_id for session in page.sessions]
        token = page.next_page_token
        if not token:
            break
    assert found == [request.internal_id for request in requests]
    malformed = pb.ListSessionsRequest(page_token="x~")
    assert await refused(stub.ListSessions(malformed)) == "INVALID_ARGUMENT"


async def test_a_watcher_gets_a_snapshot_and_then_every_change(
    stub: Any, engine: FakeEngine
) -> None:
    first = (await stub.StartSession(start_request())).session
    watch = stub.Watch(pb.WatchRequest())
    assert (await watch.read()).WhichOneof("event") == "snapshot_begin"
    images = (await watch.read()).images
    assert list(images.images) == [IMAGE]
    assert images.first is True
    assert images.last is True
    assert (await watch.read()).host.capacity.nano_cpus == 8 * 10**9
    snapshot = await watch.read()
    assert [session.internal_id for session in snapshot.sessions.sessions] == [first.internal_id]
    end = await watch.read()
    assert end.snapshot_end.reconciled
    assert end.sequence >= first.sequence
    engine.end(f"tiltyard-{first.internal_id}", 3)
    sequence = end.sequence
    while True:
        message = await watch.read()
        assert message.sequence >= sequence
        sequence = message.sequence
        if any(session.state == pb.STATE_EXITED for session in message.sessions.sessions):
            break
    watch.cancel()
    # What was acknowledged is left out of the next snapshot of the same incarnation.
    await until_sealed(stub, first.internal_id)
    host = await stub.GetHost(pb.GetHostRequest())
    for incarnation, expected in ((host.incarnation, 0), ("another", 1)):
        watch = stub.Watch(pb.WatchRequest(incarnation=incarnation, acked_sequence=host.sequence))
        sessions = 0
        while (message := await watch.read()).WhichOneof("event") != "snapshot_end":
            sessions += len(message.sessions.sessions)
        assert sessions == expected
        watch.cancel()


async def test_a_watcher_or_follower_that_goes_away_leaves_nothing_open(
    stub: Any, engine: FakeEngine
) -> None:
    watch = stub.Watch(pb.WatchRequest())
    await watch.read()
    assert stub.feed.watchers == 1
    _, [log] = await followers(stub, engine, "acme", 1)
    watch.cancel()
    log.cancel()
    while stub.feed.watchers:
        await asyncio.sleep(0)


async def followers(
    stub: Any, engine: FakeEngine, account: str, number: int
) -> tuple[pb.StreamLogsRequest, list[Any]]:
    """A new session of an account, with `number` followers that read its log."""
    identity = pb.Identity(account=account, session_id=an_id(), application="game", tag="v1")
    started = (await stub.StartSession(start_request(identity=identity))).session
    engine.write_log(f"tiltyard-{started.internal_id}", b"hello\n")
    follow = pb.StreamLogsRequest(internal_id=started.internal_id, follow=True)
    calls = [stub.StreamLogs(follow) for _ in range(number)]
    for call in calls:
        assert (await call.read()).data == b"hello\n"
    return follow, calls


@pytest.mark.slow
async def test_followers_of_logs_are_limited_by_session_account_and_host(
    stub: Any, engine: FakeEngine
) -> None:
    """An account has as many as it leaves to others: 32 of 64, then 16, 8, 4, 2, 1, 1."""

    async def is_refused(follow: pb.StreamLogsRequest) -> bool:
        return await refused(stub.StreamLogs(follow)) == "NO_CAPACITY"

    full, first = await followers(stub, engine, "first", 16)
    assert await is_refused(full)
    once = pb.StreamLogsRequest(internal_id=full.internal_id)
    assert [chunk.data async for chunk in stub.StreamLogs(once)] == [b"hello\n"]
    await followers(stub, engine, "first", 16)
    assert await is_refused((await followers(stub, engine, "first", 0))[0])
    for number, account in ((16, "second"), (8, "third"), (4, "4th"), (2, "5th"), (1, "6th")):
        await followers(stub, engine, account, number)
        assert await is_refused((await followers(stub, engine, account, 0))[0])
    await followers(stub, engine, "7th", 1)
    last, _ = await followers(stub, engine, "8th", 0)
    assert await is_refused(last)
    first[0].cancel()
    async with asyncio.timeout(DEADLINE):
        while True:  # the host learns of the cancellation when it comes
            call = stub.StreamLogs(last)
            with contextlib.suppress(grpc.aio.AioRpcError):
                assert (await call.read()).data == b"hello\n"
                break


async def test_readers_that_do_not_follow_are_limited_too(
    stub: Any, engine: FakeEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("agent.logs.reading.EACH_SESSION", 2)
    follow, _ = await followers(stub, engine, "acme", 0)
    engine.write_log(f"tiltyard-{follow.internal_id}", bytes(16_000_000))
    once = pb.StreamLogsRequest(internal_id=follow.internal_id)
    slow = [stub.StreamLogs(once) for _ in range(2)]
    for call in slow:
        await call.read()
    assert await refused(stub.StreamLogs(once)) == "NO_CAPACITY"
    for call in slow:
        call.cancel()
