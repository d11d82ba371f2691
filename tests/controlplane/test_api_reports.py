"""GET /session/{id}/report: how a session ended."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from tests.support.controlplane.fake_agent import refusing
from tests.support.controlplane.system import Answer, System, assert_error
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={}, session="s")


async def end(system: System) -> str:
    """End the session at its host; return its internal id once that is known."""
    [internal_id] = system.agent.sessions
    system.agent.end(internal_id)
    await system.becomes("s", "exited")
    return internal_id


async def report(system: System, session: str = "s") -> Answer:
    return await system.call("GET", f"/session/{session}/report")


def at(milliseconds: int) -> Timestamp:
    time = Timestamp()
    time.FromMilliseconds(milliseconds)
    return time


async def test_a_report_has_the_hosts_data(system: System) -> None:
    internal_id = await end(system)
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(
            format=1,
            internal_id=internal_id,
            state=agent_pb2.STATE_EXITED,
            end_reason=agent_pb2.END_REASON_OOM,
            detail="as it is",
            create_time=at(1000),
            end_time=at(9000),
            exit_code=137,
            signal=9,
            oom_killed=True,
            restart_count=7,
            failed_runs=[
                agent_pb2.FailedRun(
                    start_time=at(2000),
                    end_time=at(3000),
                    exit_code=0,
                    oom_killed=True,
                    restart_delay=Duration(seconds=1, nanos=500_000_000),
                ),
                agent_pb2.FailedRun(end_time=at(4000), restart_delay=Duration(seconds=60)),
            ],
            timeline=[
                agent_pb2.Moment(state=agent_pb2.STATE_CREATED, time=at(1000)),
                agent_pb2.Moment(state=agent_pb2.STATE_EXITED, time=at(9000)),
            ],
            cpu_time=Duration(seconds=2, nanos=250_000_000),
            peak_memory_bytes=2**40,
        ),
        log=b"one\n\xff\xc3\xa4\0",
        log_truncated=True,
        log_damaged=True,
    )
    answer = (await report(system)).expect(200)
    assert answer.json == {
        "id": "s",
        "status": "exited",
        "end_reason": "oom",
        "detail": "as it is",
        "created": 1000,
        "ended": 9000,
        "exitCode": 137,
        "signal": 9,
        "oomKilled": True,
        "restartCount": 7,
        "failedRuns": [
            {
                "started": 2000,
                "ended": 3000,
                "exitCode": 0,
                "oomKilled": True,
                "delaySeconds": 1.5,
            },
            {
                "started": None,
                "ended": 4000,
                "exitCode": None,
                "oomKilled": False,
                "delaySeconds": 60.0,
            },
        ],
        "timeline": [{"status": "created", "time": 1000}, {"status": "exited", "time": 9000}],
        "cpuSeconds": 2.25,
        "peakMemoryBytes": 2**40,
        "log": "one\n\ufffdä\0",
        "logTruncated": True,
        "logDamaged": True,
    }


async def test_unknown_values_of_a_report_are_null_and_an_invalid_one_503(system: System) -> None:
    internal_id = await end(system)
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(
            format=1,
            internal_id=internal_id,
            state=agent_pb2.STATE_DEAD,
            end_reason=agent_pb2.END_REASON_ENGINE_ERROR,
        )
    )
    found = (await report(system)).json
    assert (found["status"], found["end_reason"]) == ("dead", "engine_error")
    names = ("exitCode", "signal", "cpuSeconds", "peakMemoryBytes", "log")
    assert [found[name] for name in names] == [None] * 5
    assert (found["logTruncated"], found["logDamaged"]) == (False, False)
    system.agent.report.report.format = 0
    assert_error(await report(system), 503)


async def test_a_live_or_unknown_session_has_no_report(system: System) -> None:
    assert_error(await report(system), 409)
    assert_error(await report(system, "none"), 404)


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


async def test_an_unreachable_host_is_503_until_it_returns(system: System) -> None:
    await end(system)
    await system.agent.stop()
    assert_error(await report(system), 503)
    await system.agent.start()
    await system.until_answered("GET", "/session/s/report", 200)
