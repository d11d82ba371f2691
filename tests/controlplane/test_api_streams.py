"""GET /logs, GET /artifacts and GET /session/{id}/report."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import ClientPayloadError, ClientResponse
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.controlplane.agent_scripts import refuse, refusing
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tiltyard.agent.v1 import agent_pb2

LOG = "/logs?id=s&follow=true"
ARTIFACT = "/artifacts?session=s&path=/data"

pytestmark = pytest.mark.system(application={}, session="s")


@asynccontextmanager
async def following(system: System, token: str = "") -> AsyncIterator[ClientResponse]:
    """Follow the log of the session `s`; enter with its first line, if any, read."""
    headers = {"Authorization": f"Bearer {token or system.tokens['alice']}"}
    async with system.http.get(system.control_plane.base_url + LOG, headers=headers) as response:
        assert response.status == 200
        for line in system.agent.logs[:1]:
            assert await response.content.readline() == line
        yield response


async def test_a_log_is_read_whole(system: System) -> None:
    answer = await system.call("GET", "/logs?id=s")
    assert answer.status == 200
    assert answer.body == b"line 1\nline 2\n"
    assert answer.headers["Content-Type"] == "text/plain; charset=utf-8"
    assert answer.headers["X-Content-Type-Options"] == "nosniff"


async def test_a_log_is_followed_until_the_session_ends(system: System) -> None:
    async with following(system) as response:
        system.agent.log.ended.set()
        assert await response.read() == b"line 2\n"


@pytest.mark.parametrize(
    "lines",
    [
        [],
        [b"line\n"],
    ],
)
async def test_disconnected_follower_ends_the_stream(system: System, lines: list[bytes]) -> None:
    system.agent.logs = lines
    async with following(system) as response:
        response.close()
    await eventually(system.agent.log_cancelled.is_set)


async def test_a_follower_does_not_delay_the_shutdown(system: System) -> None:
    async with following(system):
        await system.stop_serving()
    await eventually(system.agent.log_cancelled.is_set)


async def test_a_failure_in_the_middle_aborts_the_connection(system: System) -> None:
    fail = asyncio.Event()

    async def refuse_then(_: Any, context: Any) -> None:
        await fail.wait()
        await refuse(context, "ENGINE_UNAVAILABLE")

    system.agent.logs = [b"line 1\n"]
    system.agent.after_logs = refuse_then
    async with following(system) as response:
        fail.set()
        with pytest.raises(ClientPayloadError):
            await response.read()


async def test_an_artifact_is_named_by_an_absolute_path(system: System) -> None:
    await system.call("DELETE", "/session/s")
    assert_error(await system.call("GET", "/artifacts?session=s&path=data"), 422, "path")


async def test_an_artifact_comes_after_the_end(system: System) -> None:
    assert_error(await system.call("GET", ARTIFACT), 409)
    assert (await system.call("DELETE", "/session/s")).status == 204
    answer = await system.call("GET", "/artifacts?session=s&path=/data/save.json")
    assert answer.status == 200
    assert answer.body == b"tar of /data/save.json"
    assert answer.headers["Content-Type"] == "application/x-tar"


@pytest.mark.parametrize(
    ("path", "reason", "status"),
    [
        (LOG, "SESSION_NOT_FOUND", 404),
        (LOG, "LOG_GONE", 404),
        (LOG, "ENGINE_UNAVAILABLE", 503),
        (LOG, "NO_CAPACITY", 503),
        (ARTIFACT, "CONTAINER_GONE", 404),
        (ARTIFACT, "PATH_NOT_FOUND", 404),
        (ARTIFACT, "SESSION_LIVE", 409),
        (ARTIFACT, "ARTIFACT_TOO_LARGE", 413),
        (ARTIFACT, "NO_CAPACITY", 503),
        (ARTIFACT, "DISK_FULL", 503),
    ],
)
async def test_a_refusal_is_an_error_before_the_first_byte(
    system: System, monkeypatch: pytest.MonkeyPatch, path: str, reason: str, status: int
) -> None:
    monkeypatch.setattr("controlplane.api.operations.streams.FIRST_BYTE_WAIT", None)
    await system.call("DELETE", "/session/s")
    system.agent.before_logs = system.agent.before_artifact = refusing(reason)
    answer = assert_error(await system.call("GET", path), status)
    assert ("Retry-After" in answer.headers) == (reason == "NO_CAPACITY")


async def end(system: System) -> str:
    """End the session at its host; return its internal id once that is known."""
    [internal_id] = system.agent.sessions
    system.agent.end(internal_id)
    await system.becomes("s", "exited")
    return internal_id


async def report(system: System, session: str = "s") -> Answer:
    return await system.call("GET", f"/session/{session}/report")


def at(seconds: int) -> Timestamp:
    return Timestamp(seconds=seconds)


async def test_a_report_has_the_hosts_data(system: System) -> None:
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(
            format=1,
            internal_id=await end(system),
            state=agent_pb2.STATE_EXITED,
            end_reason=agent_pb2.END_REASON_OOM,
            detail="as it is",
            create_time=at(1),
            end_time=at(9),
            exit_code=137,
            signal=9,
            oom_killed=True,
            limits_met=[agent_pb2.LIMIT_PIDS, agent_pb2.LIMIT_SHM, 77],  # type: ignore[list-item]
            restart_count=7,
            failed_runs=[
                agent_pb2.FailedRun(
                    start_time=at(2),
                    end_time=at(3),
                    exit_code=0,
                    oom_killed=True,
                    restart_delay=Duration(seconds=1, nanos=500_000_000),
                ),
                agent_pb2.FailedRun(
                    end_time=at(4),
                    restart_delay=Duration(seconds=60),
                    limits_met=[agent_pb2.LIMIT_DISK],
                ),
            ],
            timeline=[
                agent_pb2.Moment(state=agent_pb2.STATE_CREATED, time=at(1)),
                agent_pb2.Moment(state=agent_pb2.STATE_EXITED, time=at(9)),
            ],
            cpu_time=Duration(seconds=2, nanos=250_000_000),
            peak_memory_bytes=2**40,
            prepared=True,
            stop=agent_pb2.StopResult(
                signal="SIGINT", delivered=True, forced=True, killed=["game", "helper"]
            ),
        ),
        log=b"one\n\xff\xc3\xa4\0",
        log_truncated=True,
        log_damaged=True,
    )
    assert (await report(system)).expect(200).json == {
        "id": "s",
        "status": "exited",
        "end_reason": "oom",
        "detail": "as it is",
        "created": 1000,
        "ended": 9000,
        "exitCode": 137,
        "signal": 9,
        "oomKilled": True,
        "limitsMet": ["memory", "pids", "shm"],
        "mostPlayers": 0,
        "stopSignal": "SIGINT",
        "signalDelivered": True,
        "forced": True,
        "killed": ["game", "helper"],
        "restartCount": 7,
        "failedRuns": [
            {
                "started": 2000,
                "ended": 3000,
                "exitCode": 0,
                "oomKilled": True,
                "limitsMet": ["memory"],
                "delaySeconds": 1.5,
                "mostPlayers": None,
            },
            {
                "started": None,
                "ended": 4000,
                "exitCode": None,
                "oomKilled": False,
                "limitsMet": ["disk"],
                "delaySeconds": 60.0,
                "mostPlayers": None,
            },
        ],
        "timeline": [{"status": "created", "time": 1000}, {"status": "exited", "time": 9000}],
        "cpuSeconds": 2.25,
        "peakMemoryBytes": 2**40,
        "prepared": True,
        "log": "one\n\ufffdä\0",
        "logTruncated": True,
        "logDamaged": True,
    }


async def test_unknown_values_of_a_report_are_null(system: System) -> None:
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(
            format=1,
            internal_id=await end(system),
            state=agent_pb2.STATE_DEAD,
            end_reason=agent_pb2.END_REASON_ENGINE_ERROR,
        )
    )
    found = (await report(system)).json
    assert found["status"] == "dead"
    assert found["end_reason"] == "engine_error"
    names = ("exitCode", "signal", "cpuSeconds", "peakMemoryBytes", "log")
    assert [found[name] for name in names] == [None] * 5
    assert found["prepared"] is False
    assert found["logTruncated"] is False
    assert found["logDamaged"] is False
    assert found["stopSignal"] is None
    assert found["signalDelivered"] is None
    assert found["forced"] is False
    assert found["killed"] == []
    assert found["limitsMet"] == []


async def test_a_report_of_an_unknown_format_is_503(system: System) -> None:
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(internal_id=await end(system), state=agent_pb2.STATE_EXITED)
    )
    assert_error(await report(system), 503)


@pytest.mark.parametrize(
    ("reason", "status"),
    [
        ("SESSION_NOT_FOUND", 404),
        ("SESSION_LIVE", 409),
        ("ENGINE_UNAVAILABLE", 503),
        ("UNIMPLEMENTED", 503),
    ],
)
async def test_a_refused_report_is_an_error(system: System, reason: str, status: int) -> None:
    await end(system)
    system.agent.before_report = refusing(reason)
    assert_error(await report(system), status)


async def test_report_is_409_until_the_end_and_503_until_its_host_returns(system: System) -> None:
    assert_error(await report(system), 409)
    assert_error(await report(system, "none"), 404)
    await end(system)
    await system.agent.stop()
    assert_error(await report(system), 503)
    await system.agent.start()
    await system.until_answered("GET", "/session/s/report", 200)
