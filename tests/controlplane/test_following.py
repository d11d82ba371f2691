"""Following a host during starts, failures, restarts and stalls, and one with a newer agent."""

import asyncio
import logging
import time
from pathlib import Path
from typing import Any

import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import (
    AgentExcessError,
    AgentNewerError,
    AgentUnavailableError,
    StoreError,
)
from controlplane.domain.sessions.attempts import Attempt
from controlplane.fleet.host import state, watch
from controlplane.fleet.host.downtime import Downtime
from controlplane.fleet.host.reports import Reports
from controlplane.storage.tables.sessions.sessions import end_attempt
from tests.support.controlplane.system import System, eventually
from tests.support.fake_clock import FakeClock
from tiltyard.agent.v1 import agent_pb2
from tiltyard.contract import FORMAT
from tiltyard.runtime.stall_aware_clock import (
    LONGEST,
    TICK,
    ListeningClock,
    listening_timeout,
)

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
    agent = system.agent
    start, gate = await system.held_start(id="s")
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


async def test_an_attempt_that_is_reported_or_not_the_newest_is_not_ended(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    before = await system.rows("SELECT * FROM session")
    [names] = await system.rows("SELECT internal_id, agent, host FROM session")
    store = system.control_plane.store
    await store.run(end_attempt, "alice", "s", Attempt(*names), now=0)
    assert await system.rows("SELECT * FROM session") == before
    await system.agent.stop()  # its report would confirm the row again
    await system.rows("UPDATE session SET confirmed=0")
    before = await system.rows("SELECT * FROM session")
    other = Attempt("another attempt", system.agent.name, "")
    await store.run(end_attempt, "alice", "s", other, now=0)
    assert await system.rows("SELECT * FROM session") == before


async def test_a_host_that_reports_too_many_sessions_is_not_followed_until_it_has_fewer(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Even if all of them have ended, and are forgotten once written."""
    assert (await system.start(id="s")).status == 201
    agent = system.agent
    [session] = agent.live
    monkeypatch.setattr(state, "MAX_SESSIONS", 3)
    monkeypatch.setitem(watch.PAUSES, AgentExcessError, 0.02)
    for number in range(4):
        agent.sessions[f"ended-{number}"] = ended = agent_pb2.Session()
        ended.CopyFrom(session)
        ended.internal_id = f"ended-{number}"
        ended.state = agent_pb2.STATE_EXITED
        ended.end_reason = agent_pb2.END_REASON_EXITED
    agent.send_snapshot()
    error = "error=cannot follow the host: it reports more than 3 sessions"
    await eventually(lambda: error in caplog.text)
    for number in range(4):
        agent.lose(f"ended-{number}")
    agent.change_host(version="fewer")
    [host] = system.control_plane.fleet.hosts
    await eventually(
        lambda: host.state.report is not None and host.state.report.version == "fewer"
    )
    assert await system.status_of("s") == "running"
    assert agent.stopped == []


def test_clock_excludes_stalls() -> None:
    machine = FakeClock()
    clock = ListeningClock(machine)
    assert clock.now() == 0
    for passed, counted in ((TICK, TICK), (TICK, 2 * TICK), (3600, 2 * TICK + LONGEST)):
        machine.stall(passed)
        assert clock.now() == counted
        clock.look()
        assert clock.now() == counted
    machine.stall(TICK)
    assert clock.now() == 3 * TICK + LONGEST


async def test_timeout_excludes_stalls() -> None:
    listened = 0.0
    async with listening_timeout(0.01, lambda: listened):
        await asyncio.sleep(0.1)
    with pytest.raises(TimeoutError):
        async with listening_timeout(0.01, lambda: listened):
            await asyncio.sleep(0.05)
            listened = 0.01
            await asyncio.Event().wait()


async def test_a_stalled_control_plane_does_not_reconnect(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "controlplane")
    monkeypatch.setattr("tiltyard.runtime.stall_aware_clock.TICK", 0.05)
    monkeypatch.setattr("tiltyard.runtime.stall_aware_clock.LONGEST", 0.1)
    monkeypatch.setattr("controlplane.fleet.host.watch.MESSAGE_TIMEOUT", 0.5)
    system = System(tmp_path)
    system.agent.beat = 0.1
    async with system:
        [link] = system.control_plane.fleet.hosts
        time.sleep(1.0)  # noqa: ASYNC251  a stall on purpose
        before = link.state.reported_at or 0
        await eventually(lambda: (link.state.reported_at or 0) > before)
    assert not [message for message in caplog.messages if "stream broke" in message]


@pytest.fixture(autouse=True)
def no_pause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(watch.PAUSES, AgentNewerError, 0.02)


async def _upgrade(system: System) -> None:
    system.agent.host.format = FORMAT + 1
    system.agent.drop_watch()
    await system.reaches("a0", "newer")


@pytest.mark.system(application={})
async def test_newer_agent_is_listed_and_keeps_its_sessions_but_gets_none(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    """Stopped, it is unreachable as any other."""
    caplog.set_level(logging.INFO, "controlplane")
    session = (await system.start()).json["id"]
    system.control_plane.fleet.unreachable_after = 0.05
    await _upgrade(system)
    [link] = system.control_plane.fleet.hosts
    reported_at = link.state.reported_at
    assert "its host has format 2, and this control plane reads up to 1" in caplog.text
    assert "control planes are upgraded before agents" in caplog.text
    assert (await system.start()).status in {404, 420}
    assert len(system.agent.started) == 1
    await system.becomes(session, "server_unreachable")
    assert link.state.reported_at == reported_at
    assert (await system.call("GET", "/readyz")).status == 200

    system.control_plane.fleet.unreachable_after = 30.0
    system.agent.host.format = FORMAT
    await system.reaches("a0", "ready")
    await system.becomes(session, "running")
    assert (await system.start()).status == 201
    assert system.agent.stopped == []

    system.control_plane.fleet.unreachable_after = 0.05
    await _upgrade(system)
    await system.agent.stop()
    await system.reaches("a0", "unreachable")


@pytest.mark.system(application={})
async def test_one_session_of_a_newer_format_is_enough(system: System) -> None:
    session = (await system.start()).json["id"]
    [held] = system.agent.live
    system.agent.change(held.internal_id, format=FORMAT + 1)
    await system.reaches("a0", "newer")
    assert await system.status_of(session) in {"running", "server_unreachable"}
    assert system.agent.stopped == []
    system.agent.change(held.internal_id, format=FORMAT)
    await system.reaches("a0", "ready")


async def test_newer_agent_is_never_given_up_as_lost(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is responsive until the control plane is upgraded, however long that takes."""
    calls: list[str] = []

    def note(name: str) -> None:
        method = getattr(Downtime, name)

        async def noted(downtime: Downtime, *reports: Any) -> None:
            calls.append(name)
            await method(downtime, *reports)

        monkeypatch.setattr(Downtime, name, noted)

    note("reported")
    note("missed")
    await _upgrade(system)
    calls.clear()
    await eventually(lambda: calls.count("missed") > 5)
    assert "missed missed" not in " ".join(calls)


@pytest.mark.parametrize(
    ("number", "error"),
    [
        (2, AgentNewerError),
        (0, AgentUnavailableError),
    ],
)
@pytest.mark.system(application={})
async def test_answer_of_an_unknown_format_is_rejected(
    system: System, number: int, error: type[AgentUnavailableError]
) -> None:
    await system.start()
    [session] = system.agent.live
    client = AgentClient(system.agent.address)
    system.agent.end(session.internal_id)
    report = agent_pb2.Report(format=number, internal_id=session.internal_id)
    system.agent.report = agent_pb2.GetReportResponse(report=report)
    with pytest.raises(error) as caught:
        await client.get_report(session.internal_id)
    assert type(caught.value) is error
    session.format = number
    with pytest.raises(error):
        await client.stop_session(session.internal_id, 5.0, discard=False)
    session.format = FORMAT
    await client.close()
