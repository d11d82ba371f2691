"""Restarts of the control plane: which reports are compared with the rows of their sessions."""

import time
from typing import Any

import pytest

from controlplane.fleet.host.reports import Reports
from tests.support.controlplane.system import System, eventually, eventually_equals
from tests.support.controlplane.transactions import opened
from tiltyard.runtime.clock import to_ms

pytestmark = pytest.mark.system(application={})


def count_writes(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the internal ids of the reports that are compared with their rows."""
    written: list[str] = []
    write = Reports.write

    async def noted(self: Reports, agent: str, sessions: Any, *more: Any) -> Any:
        written.extend(session.internal_id for session in sessions)
        return await write(self, agent, sessions, *more)

    monkeypatch.setattr(Reports, "write", noted)
    return written


async def stop_with_reports_in_rows(system: System) -> None:
    """Stop a control plane that has stored that all reports are in rows."""
    await system.restart()  # since it is stored after a snapshot
    sql = "SELECT written_incarnation, written_sequence FROM agent"
    agent = system.agent
    await eventually_equals(
        lambda: system.rows(sql), [(system.link().state.incarnation, agent.sequence)]
    )
    await system.stop_serving()


async def edit(system: System, *statements: str) -> None:
    """Edit the database of a stopped control plane."""
    async with opened(system.config.database) as store:
        await store.run(lambda db: [*map(db.execute, statements)])


async def test_restart_reads_only_reports_that_are_not_in_rows(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    for session_id in ("same", "changed"):
        (await system.start(id=session_id)).expect(201)
    await stop_with_reports_in_rows(system)
    same, changed = system.agent.live
    system.agent.change(changed.internal_id, detail="it has changed")
    written = count_writes(monkeypatch)
    await system.serve()
    assert written == [changed.internal_id]
    assert await system.rows("SELECT detail FROM session ORDER BY id") == [
        ("it has changed",),
        ("",),
    ]
    state = system.link().state
    assert state.live_sessions == 2
    unread = state.session(same.internal_id)
    assert unread is not None
    assert unread.identity.session_id == "same"


async def test_session_that_ended_meanwhile_ends(system: System) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    system.agent.end(system.agent.live[0].internal_id)
    await system.serve()
    await system.becomes("x", "exited")


async def test_session_that_vanished_meanwhile_ends(system: System) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    system.agent.sessions.clear()
    await system.serve()
    await system.becomes("x", "dead")


async def test_restart_reads_all_reports_of_another_incarnation(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    [session] = system.agent.live
    await system.agent.restart()
    written = count_writes(monkeypatch)
    await system.serve()
    assert written == [session.internal_id]


@pytest.mark.parametrize(
    "change",
    [
        "stop_requested_ms=1",
        "state='dead', end_reason='host_lost', ended_ms={now}",
    ],
    ids=["stop requested", "ended"],
)
async def test_session_whose_row_changed_meanwhile_is_stopped(system: System, change: str) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    [session] = system.agent.live
    await edit(system, f"UPDATE session SET {change.format(now=to_ms(time.time()))}")
    await system.serve()
    await eventually(lambda: session.internal_id in system.agent.stopped)


async def test_report_of_a_removed_account_is_compared(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    [session] = system.agent.live
    await edit(
        system,
        "DELETE FROM session",
        "UPDATE account SET removed_ms=1 WHERE name='alice'",
    )
    written = count_writes(monkeypatch)
    await system.serve()
    assert session.internal_id in written


async def test_session_whose_row_was_lost_is_adopted(system: System) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    await edit(
        system,
        "DELETE FROM session",
        "UPDATE lost_time SET begin_ms=0, end_ms=NULL",
    )
    await system.serve()
    await system.becomes("x", "running")


async def test_older_copy_of_the_database_gets_what_changed_since(system: System) -> None:
    (await system.start(id="x")).expect(201)
    await stop_with_reports_in_rows(system)
    older = system.config.database.read_bytes()
    await system.serve()
    system.agent.change(system.agent.live[0].internal_id, detail="it has changed")
    await stop_with_reports_in_rows(system)
    for file in system.config.database.parent.glob("controlplane.db*"):
        file.unlink()
    system.config.database.write_bytes(older)
    await system.serve()
    assert await system.rows("SELECT detail FROM session") == [("it has changed",)]


async def test_older_copy_of_the_database_begins_an_epoch_of_events(system: System) -> None:
    await system.stop_serving()
    older = system.config.database.read_bytes()
    await system.serve()
    first = await system.rows("SELECT epoch FROM event_counter")
    await system.make_token(name="later", scopes=[])
    await system.stop_serving()
    for file in system.config.database.parent.glob("controlplane.db*"):
        file.unlink()
    system.config.database.write_bytes(older)
    await system.serve()
    again = await system.rows("SELECT epoch FROM event_counter")
    assert again > first
    await system.restart()
    assert await system.rows("SELECT epoch FROM event_counter") == again
