"""Reported sessions that the database does not know, over HTTP.

`tests/unit/controlplane/storage/tables/sessions/test_reports.py` has each rule.
"""

import copy
import json
import time
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.sessions.adoption import Verdicts
from controlplane.fleet.host import watch as watching
from controlplane.fleet.host.reports import Reports
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import System, assert_error, eventually, eventually_equals
from tests.support.controlplane.transactions import opened
from tests.support.fake_clock import AheadClock
from tiltyard.agent.v1 import agent_pb2

MINUTE = 60
DAY = 24 * 3600

pytestmark = pytest.mark.system(agents=2, in_order=True, application={})


async def edit(system: System, *statements: str) -> None:
    """Edit the database of a stopped control plane."""
    async with opened(system.config.database) as store:
        await store.run(lambda db: [*map(db.execute, statements)])


async def lose_database(system: System) -> None:
    """Restart on a database without sessions."""
    await system.stop_serving()
    await edit(
        system,
        "DELETE FROM session",
        "DELETE FROM stop_order",
        "UPDATE lost_time SET begin_ms=0, end_ms=NULL",
    )
    await system.serve()


@pytest.mark.parametrize(
    ("field", "forged"),
    [
        ("account", "bob"),
        ("session_id", "other"),
        ("application", "other"),
        ("location", "elsewhere"),
        ("tag", "other"),
        ("external_id", "other"),
        ("ticket", bytes(32)),
    ],
)
@pytest.mark.system(application={})
async def test_session_without_valid_ticket_is_left_alone(
    system: System, field: str, forged: object, caplog: pytest.LogCaptureFixture
) -> None:
    await system.start(id="x")
    (session,) = system.agent.live
    await system.stop_serving()
    setattr(session.identity, field, forged)
    await edit(system, "DELETE FROM session")
    await system.serve()
    system.agent.change(session.internal_id, state=agent_pb2.STATE_RESTARTING)
    system.agent.change(session.internal_id, state=agent_pb2.STATE_RUNNING)
    assert await unclaimed(system, system.agent) == [session.internal_id]
    assert await system.rows("SELECT 1 FROM session") == []
    assert (await system.start(id="after")).status == 201  # all was processed
    assert system.agent.stopped == []
    assert len([r for r in caplog.records if "no valid ticket" in r.message]) == 1
    system.agent.end(session.internal_id)
    system.agent.send_snapshot()
    await eventually(lambda: not system.link().state.unclaimed)


@pytest.mark.system(application={}, agents=1)
async def test_session_whose_row_was_removed_is_not_adopted(system: System) -> None:
    """A compromised host reports an ended session as live, with the ticket that it still has."""
    assert (await system.start(id="x")).status == 201
    (session,) = system.agent.live
    kept = copy.deepcopy(session)
    assert (await system.call("DELETE", "/session/x")).status == 204
    await system.stop_serving()
    await edit(
        system,
        "DELETE FROM session",
        "UPDATE lost_time SET end_ms=1000",
        f"UPDATE agent SET last_report_ms={1000 * int(time.time() + DAY)}",
    )
    system.clock = AheadClock(wall_ahead=2 * DAY)
    kept.reservation.nano_cpus = 2**46
    system.agent.sessions[kept.internal_id] = kept
    await system.serve()
    await eventually_equals(lambda: unclaimed(system, system.agent), [kept.internal_id])
    await system.restart()
    await eventually_equals(lambda: unclaimed(system, system.agent), [kept.internal_id])
    assert (await system.read("/session?all=1"))["sessions"] == []
    assert system.agent.stopped == [kept.internal_id]  # by its DELETE


@pytest.mark.system(application={}, agents=1)
async def test_session_of_a_lost_database_is_adopted_as_it_was_placed(system: System) -> None:
    assert (await system.start(id="x", labels={"mode": "ffa"})).status == 201
    before = await system.rows("SELECT nano_cpus, memory_bytes, labels, location FROM session")
    (session,) = system.agent.live
    session.reservation.nano_cpus = 2**46
    session.reservation.memory_bytes = 2**50
    await lose_database(system)
    await system.becomes("x", "running")
    after = await system.rows("SELECT nano_cpus, memory_bytes, labels, location FROM session")
    assert after == before


async def test_an_old_ticket_does_not_end_a_later_session_of_the_id(system: System) -> None:
    """A compromised host reports a session that is forgotten here as new."""
    first, second = system.agents
    assert (await system.start(id="x")).status == 201
    (old,) = first.live
    await first.stop()
    await lose_database(system)
    assert (await system.start(id="x")).status == 201
    (lives,) = second.live
    old.create_time.seconds += 30 * 24 * 60 * MINUTE
    await first.restart()
    await eventually_equals(lambda: unclaimed(system, first), [old.internal_id])
    assert await system.rows("SELECT internal_id FROM session") == [(lives.internal_id,)]
    assert first.stopped == []
    assert second.stopped == []


async def unclaimed(system: System, agent: FakeAgent) -> list[str]:
    answer = await system.call("GET", f"/operator/agent/{agent.name}")
    shown: list[str] = answer.json["unclaimed"]
    assert answer.json["unclaimedCount"] == len(shown)
    return shown


@pytest.mark.system(application={})
async def test_session_of_unknown_account_is_adopted_once_it_exists(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CLAIM_INTERVAL", 0.0)
    await system.start(id="x")
    (lives,) = system.agent.live
    await system.stop_serving()
    for file in (system.folder / "state").glob("controlplane.db*"):
        file.unlink()
    tokens = await ControlPlane(system.config).initialise(("bob",))
    system.operator_token = tokens.operator_token or ""
    await system.serve()
    await eventually_equals(lambda: unclaimed(system, system.agent), [lives.internal_id])
    system.tokens = (await ControlPlane(system.config).initialise(("alice",))).accounts
    await system.becomes("x", "running")
    await eventually_equals(lambda: unclaimed(system, system.agent), [])
    assert system.agent.stopped == []
    assert len(await system.events("session.adopted", "1")) == 1


async def test_requested_stop_applies_to_the_remaining_session(system: System) -> None:
    first, second = system.agents
    assert (await system.start(id="x")).status == 201
    await first.stop()
    await lose_database(system)
    assert (await system.start(id="x")).status == 201
    (older,) = first.live
    (newer,) = second.live
    second.before_stop = second.hang
    system.control_plane.sessions.stop_wait = 0.1
    assert_error(await system.call("DELETE", "/session/x"), 503)
    older.create_time.seconds = newer.create_time.seconds + MINUTE
    await first.restart()
    await eventually(lambda: not first.live)
    second.before_stop = None
    await second.restart()
    await system.nothing_is_left()
    assert await system.status_of("x") == "exited"


async def test_reported_session_survives_a_failed_start_of_its_id(system: System) -> None:
    first, second = system.agents
    assert (await system.start(id="x")).status == 201
    (there,) = first.live
    there.create_time.seconds -= MINUTE
    await first.stop()
    first.beat = second.beat = 0.05
    await lose_database(system)
    system.control_plane.starts.start_timeout = 60.0

    async def after_it_was_found(request: Any, context: Any) -> None:
        await first.restart()
        host = system.link(first.name)
        await eventually(lambda: host.state.session(there.internal_id) is not None)
        reported_at = host.state.reported_at
        await eventually(lambda: host.state.reported_at != reported_at)  # the next message
        await refusing("IMAGE_CANNOT_RUN")(request, context)

    second.before_start = after_it_was_found
    assert_error(await system.start(id="x"), 420)
    await system.becomes("x", "running")
    assert await system.rows("SELECT internal_id FROM session") == [(there.internal_id,)]


@pytest.mark.system(application={})
async def test_session_that_becomes_ready_is_an_event(system: System) -> None:
    system.agent.binds_at_once = False
    assert (await system.start(id="x")).status == 201
    (session,) = system.agent.live
    system.agent.bind(session.internal_id)
    await eventually_equals(lambda: system.events("session.ready", "object"), [("x",)])
    [(kept,)] = await system.rows("SELECT ready_ms FROM session")
    [(data,)] = await system.events("session.ready", "data")
    assert json.loads(data)["hostTime"] == kept
    assert json.loads(data)["ports"] == (await system.call("GET", "/session/x")).json["port"]


@pytest.mark.parametrize("is_warm", [False, True])
@pytest.mark.system(application={})
async def test_reports_that_change_no_row_are_not_written(
    system: System, monkeypatch: pytest.MonkeyPatch, *, is_warm: bool
) -> None:
    system.agent.binds_at_once = is_warm
    if is_warm:
        (await system.call("PUT", "/warm-pool/game/local", json={"size": 1})).expect(204)
        await system.until("/warm-pool", lambda found: found["warmPools"][0]["ready"] == 1)
    assert (await system.start(id="x")).status == 201
    (session,) = system.agent.live
    await eventually(lambda: system.is_confirmed("x"))
    written: list[str] = []
    write = Reports.write

    async def noted(self: Reports, agent: str, sessions: Any, *more: Any) -> Verdicts:
        written.extend(session.internal_id for session in sessions)
        return await write(self, agent, sessions, *more)

    monkeypatch.setattr(Reports, "write", noted)
    for _ in range(2):
        system.agent.change(session.internal_id)
    await system.catches_up()
    system.agent.change_host()
    await system.catches_up()
    assert session.internal_id not in written
    system.agent.change(session.internal_id, state=agent_pb2.STATE_RESTARTING)
    await eventually(lambda: session.internal_id in written)
    system.agent.send_snapshot()
    await eventually(lambda: written.count(session.internal_id) == 2)
