"""What callers see of players when a session's game fails and is started again."""

import pytest

from tests.support.controlplane.system import System
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={}, session="m")


async def fail(system: System) -> agent_pb2.FailedRun:
    """End the session's run by a failure, after which its host starts it again."""
    [internal_id] = system.agent.sessions
    session = system.agent.sessions[internal_id]
    session.failure_time.GetCurrentTime()
    run = agent_pb2.FailedRun(exit_code=139)
    run.end_time.CopyFrom(session.failure_time)
    system.agent.change(internal_id, state=agent_pb2.STATE_RESTARTING)
    await system.becomes("m", "restarting")
    system.agent.change(internal_id, state=agent_pb2.STATE_RUNNING, restart_count=1)
    await system.becomes("m", "running")
    return run


async def test_restarted_session_is_listed_with_the_players_of_its_run(system: System) -> None:
    await system.join(*(f"p{number}" for number in range(10)))
    assert (await system.read("/session?playerCount[lt]=10"))["sessions"] == []
    await fail(system)
    [listed] = (await system.read("/session?playerCount[lt]=10"))["sessions"]
    assert listed["playerCount"] == 0
    assert (await system.join("q")).json == {"count": 1, "players": ["q"]}
    described = await system.read("/session/m")
    assert described["players"] == {"joined": ["q"], "joinedCount": 1}


async def test_report_has_the_highest_number_of_players_of_each_run(system: System) -> None:
    await system.join("a", "b", "c")
    await system.leave("a", "b", session="m")
    first = await fail(system)
    await system.join("d", "e")
    second = await fail(system)
    await system.join("f")
    await system.leave("f", session="m")
    [internal_id] = system.agent.sessions
    system.agent.end(internal_id)
    await system.becomes("m", "exited")
    system.agent.report = agent_pb2.GetReportResponse(
        report=agent_pb2.Report(
            format=1,
            internal_id=internal_id,
            state=agent_pb2.STATE_EXITED,
            end_reason=agent_pb2.END_REASON_EXITED,
            failed_runs=[first, second],
        )
    )
    report = await system.read("/session/m/report")
    assert [run["mostPlayers"] for run in report["failedRuns"]] == [3, 2]
    assert report["mostPlayers"] == 1
