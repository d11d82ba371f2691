"""Following a host during starts, database errors and restarts of its agent."""

from typing import Any

import pytest

from controlplane.domain.errors import AgentExcessError, StoreError
from controlplane.fleet.host import state, watch
from controlplane.storage.tables.reports import Reports
from controlplane.storage.tables.session_rows import Attempt
from controlplane.storage.tables.sessions import end_attempt
from tests.support.controlplane.system import System, eventually
from tiltyard.agent.v1 import agent_pb2

HIGH = 1000  # A sequence that a restarted agent does not reach

pytestmark = pytest.mark.system(application={})


def fail_once(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make the database fail once on the report of an ended session; return whose, once it has."""
    failed: list[str] = []
    write = Reports.write

    async def failing(store: Reports, agent: str, sessions: Any, *more: Any) -> Any:
        if not failed and any(session.state.ended for session in sessions):
            failed.append(agent)
            raise StoreError("the disk is full")
        return await write(store, agent, sessions, *more)

    monkeypatch.setattr(Reports, "write", failing)
    return failed


async def test_a_snapshot_during_a_start_does_not_end_it(system: System) -> None:
    agent, (start, gate) = system.agent, await system.held_start(id="s")
    agent.send_snapshot()
    agent.change_host(version="after the snapshot")
    await system.has_reported(agent.name, version=agent.host.version)
    gate.set()
    assert (await start).status == 201
    assert await system.status_of("s") == "running"
    assert agent.stopped == []


async def test_an_end_that_could_not_be_written_is_reported_again(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await system.start(id="s")).status == 201
    failed = fail_once(monkeypatch)
    (session,) = system.agent.live
    system.agent.end(session.internal_id, agent_pb2.END_REASON_OOM)
    await system.becomes("s", "exited")
    assert failed == ["a0"]


async def test_reports_of_an_earlier_incarnation_are_not_acknowledged_to_the_next(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    agent = system.agent
    agent.sequence = HIGH
    assert (await system.start(id="s")).status == 201
    (session,) = agent.live
    await agent.stop()
    agent.end(session.internal_id, agent_pb2.END_REASON_OOM)
    failed = fail_once(monkeypatch)  # interrupts the first snapshot of the next process
    await agent.restart()
    await system.becomes("s", "exited")
    assert failed == ["a0"]


async def test_an_attempt_that_is_not_the_newest_is_not_ended(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    await system.agent.stop()  # its report would confirm the row again
    await system.rows("UPDATE session SET confirmed=0")
    before = await system.rows("SELECT * FROM session")
    other = Attempt("another attempt", system.agent.name, "")
    await system.control_plane.store.run(end_attempt, "alice", "s", other, 0, unanswered=False)
    assert await system.rows("SELECT * FROM session") == before


async def test_an_attempt_that_its_host_has_reported_stays_on_its_row(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    before = await system.rows("SELECT * FROM session")
    [names] = await system.rows("SELECT internal_id, agent, host FROM session")
    store = system.control_plane.store
    await store.run(end_attempt, "alice", "s", Attempt(*names), 0, unanswered=False)
    assert await system.rows("SELECT * FROM session") == before


async def test_a_host_that_reports_too_many_sessions_is_not_followed_until_it_has_fewer(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if all of them have ended, and are forgotten once written."""
    assert (await system.start(id="s")).status == 201
    agent, [session] = system.agent, system.agent.live
    monkeypatch.setattr(state, "MAX_SESSIONS", 3)
    monkeypatch.setitem(watch.PAUSES, AgentExcessError, 0.02)
    for number in range(4):
        agent.sessions[f"ended-{number}"] = ended = agent_pb2.Session()
        ended.CopyFrom(session)
        ended.internal_id = f"ended-{number}"
        ended.state, ended.end_reason = agent_pb2.STATE_EXITED, agent_pb2.END_REASON_EXITED
    agent.send_snapshot()
    error = "error=cannot follow the host: it reports more than 3 sessions"
    await eventually(lambda: error in caplog.text)
    for number in range(4):
        agent.lose(f"ended-{number}")
    agent.change_host(version="fewer")
    [host] = system.control_plane.fleet.hosts
    await eventually(lambda: host.report is not None and host.report.version == "fewer")
    assert await system.status_of("s") == "running"
    assert agent.stopped == []
