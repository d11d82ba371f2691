"""Reported sessions that the database does not know, over HTTP.

`tests/unit/controlplane/storage/tables/test_reports.py` has each rule.
"""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from controlplane.app.control_plane import ControlPlane
from controlplane.fleet.host import watch as watching
from controlplane.storage.engine.store import Store
from tests.support.controlplane.fake_agent import FakeAgent, refusing
from tests.support.controlplane.system import System, assert_error, eventually
from tiltyard.agent.v1 import agent_pb2

MINUTE = 60


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[System]:
    """Two hosts; the first is tried first."""
    system = System(tmp_path, agents=2)
    system.prefer(*system.agents)
    async with system:
        await system.make_application()
        yield system


async def edit(system: System, *statements: str) -> None:
    """Edit the database of a stopped control plane."""
    store = Store(system.config.database)
    await store.open()
    for sql in statements:
        await store.run(lambda db, sql=sql: db.execute(sql))  # type: ignore[misc]
    await store.close()


async def lose_database(system: System) -> None:
    """Restart on a database without sessions."""
    await system.stop_serving()
    await edit(system, "DELETE FROM session", "DELETE FROM unanswered")
    await system.serve()


async def twins(system: System) -> tuple[agent_pb2.Session, agent_pb2.Session]:
    """Run a session `x` on each of two hosts, the second an hour younger."""
    first, second = system.agents
    assert (await system.start(id="x")).status == 201
    await first.stop()
    await lose_database(system)
    assert (await system.start(id="x")).status == 201
    (older,), (newer,) = first.live, second.live
    older.create_time.seconds -= 60 * MINUTE
    return older, newer


async def audit(system: System, kind: str) -> list[dict[str, Any]]:
    rows = await system.rows("SELECT data FROM event WHERE kind=?", kind)
    return [json.loads(data) for (data,) in rows]


async def test_session_with_ticket_is_adopted_after_database_loss(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        assert len(system.agent.started[0].spec.identity.ticket) == 40
        await lose_database(system)
        await system.becomes("x", "running")
        assert len(await audit(system, "session.adopted")) == 1


@pytest.mark.parametrize("forged", ["account", "ticket"])
async def test_session_without_valid_ticket_is_left_alone(
    tmp_path: Path, forged: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        (session,) = system.agent.live
        await system.stop_serving()
        wrong: Any = {"account": "bob", "ticket": bytes(32)}.get(forged, "other")
        setattr(session.identity, forged, wrong)
        await edit(system, "DELETE FROM session")
        await system.serve()
        system.agent.change(session.internal_id, state=agent_pb2.STATE_RESTARTING)
        system.agent.change(session.internal_id, state=agent_pb2.STATE_RUNNING)
        assert await unclaimed(system, system.agent) == [session.internal_id]
        assert await system.rows("SELECT 1 FROM session") == []
        assert (await system.start(id="after")).status == 201  # all was processed
        assert system.agent.stopped == []
        logs = [r for r in caplog.records if "no valid ticket" in r.message]
        assert len(logs) == 1
        system.agent.end(session.internal_id)
        system.agent.tell_snapshot()
        link = system.control_plane.fleet.host(system.agent.name)
        assert link is not None
        await eventually(lambda: not link.unclaimed)


async def test_an_old_ticket_does_not_end_a_later_session_of_the_id(pair: System) -> None:
    """A compromised host reports a session that is forgotten here as new."""
    first, second = pair.agents
    assert (await pair.start(id="x")).status == 201
    (old,) = first.live
    await first.stop()
    await lose_database(pair)
    assert (await pair.start(id="x")).status == 201
    (lives,) = second.live
    old.create_time.seconds += 30 * 24 * 60 * MINUTE
    await first.restart()

    async def seen() -> bool:
        return await unclaimed(pair, first) == [old.internal_id]

    await eventually(seen)
    assert await pair.rows("SELECT internal_id FROM session") == [(lives.internal_id,)]
    assert (first.stopped, second.stopped) == ([], [])


async def unclaimed(system: System, agent: FakeAgent) -> list[str]:
    answer = await system.call("GET", f"/operator/agent/{agent.name}")
    shown: list[str] = answer.json["unclaimed"]
    assert answer.json["unclaimedCount"] == len(shown)
    return shown


async def test_session_of_unknown_account_is_adopted_once_it_exists(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watching, "CLAIM_INTERVAL", 0.0)
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        (lives,) = system.agent.live
        await system.stop_serving()
        for file in (system.folder / "state").glob("controlplane.db*"):
            file.unlink()
        tokens = await ControlPlane(system.config).initialise(("bob",))
        system.operator_token = tokens.operator_token or ""
        await system.serve()

        async def shown() -> bool:
            return await unclaimed(system, system.agent) == [lives.internal_id]

        await eventually(shown)
        system.tokens = (await ControlPlane(system.config).initialise(("alice",))).accounts
        await system.becomes("x", "running")
        assert await unclaimed(system, system.agent) == []
        assert system.agent.stopped == []


async def test_later_start_wins_between_sessions_with_one_id(pair: System) -> None:
    first, second = pair.agents
    _, newer = await twins(pair)
    await pair.stop_serving()
    await edit(pair, "DELETE FROM session")
    await first.restart()
    await second.stop()
    await pair.serve()
    await pair.becomes("x", "running")
    await second.restart()
    await eventually(lambda: not first.live and bool(second.live))
    row = await pair.rows("SELECT internal_id, agent FROM session WHERE ended_ms IS NULL")
    assert row == [(newer.internal_id, second.name)]
    assert (await pair.call("DELETE", "/session/x")).status == 204
    await pair.nothing_is_left()


async def test_requested_stop_applies_to_the_remaining_session(pair: System) -> None:
    first, second = pair.agents
    older, newer = await twins(pair)
    second.before_stop = second.hang
    pair.control_plane.sessions.stop_wait = 0.1
    assert_error(await pair.call("DELETE", "/session/x"), 503)
    older.create_time.seconds = newer.create_time.seconds + MINUTE
    await first.restart()
    await eventually(lambda: not first.live)
    second.before_stop = None
    await second.restart()
    await pair.nothing_is_left()
    assert await pair.status_of("x") == "exited"


@pytest.mark.parametrize("succeeds", [True, False])
async def test_reported_session_waits_for_a_start_of_its_id(pair: System, succeeds: bool) -> None:
    """A failed start must not end the existing session."""
    first, second = pair.agents
    assert (await pair.start(id="x")).status == 201
    (there,) = first.live
    there.create_time.seconds -= MINUTE
    await first.stop()
    first.beat = second.beat = 0.05
    await lose_database(pair)
    outcome = refusing("IMAGE_CANNOT_RUN")
    pair.control_plane.starts.start_timeout = 60.0

    async def after_it_was_found(request: Any, context: Any) -> None:
        await first.restart()
        host = pair.control_plane.fleet.host(first.name)
        assert host is not None
        await eventually(lambda: host.session(there.internal_id) is not None)
        reported_at = host.reported_at
        await eventually(lambda: host.reported_at != reported_at)  # the next message
        if not succeeds:
            await outcome(request, context)

    second.before_start = after_it_was_found
    answer = await pair.start(id="x")
    assert answer.status == (201 if succeeds else 420)
    await pair.becomes("x", "running")
    keeps, loses = (second, first) if succeeds else (first, second)
    await eventually(lambda: not loses.live)
    assert len(keeps.live) == 1


async def test_ended_session_is_restored_with_its_log(tmp_path: Path) -> None:
    """As after an older backup was restored."""
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        system.agent.end(next(iter(system.agent.sessions)))
        await system.becomes("x", "exited")
        await lose_database(system)
        await system.becomes("x", "exited")
        assert (await system.call("GET", "/logs", params={"id": "x"})).status == 200
        assert_error(await system.start(id="x"), 409)
        assert system.agent.stopped == []
