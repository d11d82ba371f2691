"""What becomes of sessions that hosts report and the database does not know."""

import copy
import json
import uuid
from collections.abc import AsyncIterator, Callable
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
    """Change the database of a control plane that does not run."""
    store = Store(system.config.database)
    await store.open()
    for sql in statements:
        await store.run(lambda db, sql=sql: db.execute(sql))  # type: ignore[misc]
    await store.close()


async def lose_database(system: System) -> None:
    """Restart on a database that knows of no session."""
    await system.stop_serving()
    await edit(system, "DELETE FROM session", "DELETE FROM unanswered")
    await system.serve()


async def twins(system: System) -> tuple[agent_pb2.Session, agent_pb2.Session]:
    """Have two hosts live with a session `x` each, the second an hour younger."""
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


async def test_a_start_carries_a_ticket_that_has_it_adopted(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        assert len(system.agent.started[0].spec.identity.ticket) == 40
        await lose_database(system)
        await system.becomes("x", "running")
        assert len(await audit(system, "session.adopted")) == 1


@pytest.mark.parametrize("forged", ["account", "session_id", "application", "ticket"])
async def test_what_has_no_valid_ticket_is_nobodys_and_let_be(
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
        assert (await system.start(id="after")).status == 201  # all was taken in by now
        assert system.agent.stopped == []
        told = [r for r in caplog.records if "no valid ticket" in r.message]
        assert len(told) == 1
        system.agent.end(session.internal_id)
        system.agent.tell_snapshot()
        link = system.control_plane.fleet.host(system.agent.name)
        assert link is not None
        await eventually(lambda: not link.unclaimed)


async def test_an_old_ticket_does_not_end_a_later_session_of_the_id(pair: System) -> None:
    """A host that was taken over kept a session that is forgotten here, and reports it as new."""
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


async def test_an_agent_cannot_speak_for_another_hosts_session(pair: System) -> None:
    """Not with the other's ticket either: it names the agent."""
    first, second = pair.agents
    await pair.start(id="x")
    (theirs,) = first.live
    told = copy.deepcopy(theirs)
    told.state, told.end_reason = agent_pb2.STATE_EXITED, agent_pb2.END_REASON_EXITED
    for session in (copy.deepcopy(theirs), told):
        second.sessions[theirs.internal_id] = session
        second.tell_snapshot()
        second.change_host(free_sessions=6 if session is told else 8)
        link = pair.control_plane.fleet.host(second.name)
        assert link is not None
        last = second.host.free_sessions - len(second.live)
        await eventually(lambda: link.report is not None and link.report.free_sessions == last)  # noqa: B023
        assert await pair.status_of("x") == "running"
        assert await unclaimed(pair, second) == ([] if session is told else [theirs.internal_id])
    assert (first.stopped, second.stopped) == ([], [])


async def test_an_agent_cannot_settle_what_another_host_owes(pair: System) -> None:
    first, second = pair.agents
    first.after_start = refusing("ENGINE_TIMEOUT")
    first.before_stop = first.hang
    assert (await pair.start(id="x")).status == 201
    (owed,) = first.live
    second.sessions[owed.internal_id] = copy.deepcopy(owed)
    second.tell_snapshot()

    async def seen() -> bool:
        return await unclaimed(pair, second) == [owed.internal_id]

    await eventually(seen)
    assert await pair.rows("SELECT agent, stopped_ms FROM unanswered") == [(first.name, None)]
    assert second.stopped == []


async def test_what_an_account_had_that_was_removed_is_stopped(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        await system.stop_serving()
        later = 4_000_000_000_000  # so that upkeep does not delete its row first
        removed = f"UPDATE account SET removed_ms={later} WHERE name='alice'"
        await edit(system, "DELETE FROM session", removed)
        await system.serve()
        await eventually(lambda: not system.agent.live)


async def test_what_is_of_an_unknown_account_is_let_be_until_there_is_one(
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


@pytest.mark.parametrize("younger_first", [True, False])
async def test_of_two_sessions_with_one_id_the_later_start_stays(
    pair: System, younger_first: bool
) -> None:
    first, second = pair.agents
    older, newer = await twins(pair)
    await pair.stop_serving()
    await edit(pair, "DELETE FROM session")
    await (second if younger_first else first).restart()
    await (first if younger_first else second).stop()
    await pair.serve()
    await pair.becomes("x", "running")
    await (first if younger_first else second).restart()
    await eventually(lambda: not first.live and bool(second.live))
    row = await pair.rows("SELECT internal_id, agent FROM session WHERE ended_ms IS NULL")
    assert row == [(newer.internal_id, second.name)]
    assert await audit(pair, "session.duplicate") == [
        {
            "stopped": {"agent": first.name, "internal_id": older.internal_id},
            "kept": {"agent": second.name, "internal_id": newer.internal_id},
        }
    ]
    assert (await pair.call("DELETE", "/session/x")).status == 204
    await pair.nothing_is_left()


async def test_of_two_that_began_at_one_time_the_higher_internal_id_stays(pair: System) -> None:
    first, _ = pair.agents
    older, newer = await twins(pair)
    older.create_time.CopyFrom(newer.create_time)
    await first.restart()
    await eventually(lambda: len([s for a in pair.agents for s in a.live]) == 1)
    (stays,) = [s for a in pair.agents for s in a.live]
    assert stays.internal_id == max(older.internal_id, newer.internal_id)
    assert await pair.status_of("x") == "running"


async def test_a_stop_that_was_asked_is_of_whichever_stays(pair: System) -> None:
    first, second = pair.agents
    older, newer = await twins(pair)
    second.before_stop = second.hang
    pair.control_plane._sessions._stop_wait = 0.1
    assert_error(await pair.call("DELETE", "/session/x"), 503)
    older.create_time.seconds = newer.create_time.seconds + MINUTE
    await first.restart()
    await eventually(lambda: not first.live)
    second.before_stop = None
    await second.restart()
    await pair.nothing_is_left()
    assert await pair.status_of("x") == "exited"


@pytest.mark.parametrize("succeeds", [True, False])
async def test_what_is_found_while_its_id_is_started_again_waits_for_that(
    pair: System, succeeds: bool
) -> None:
    """A start that fails must not cost the session that was there."""
    first, second = pair.agents
    assert (await pair.start(id="x")).status == 201
    (there,) = first.live
    there.create_time.seconds -= MINUTE
    await first.stop()
    first.beat = second.beat = 0.05
    await lose_database(pair)
    outcome = refusing("IMAGE_CANNOT_RUN")
    pair.control_plane._starts.start_timeout = 60.0

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


async def test_an_ended_row_never_comes_back(pair: System) -> None:
    first, second = pair.agents
    older, newer = await twins(pair)
    assert (await pair.call("DELETE", "/session/x")).status == 204
    older.create_time.seconds = newer.create_time.seconds + MINUTE
    await first.restart()
    await eventually(lambda: older.internal_id in first.stopped)
    assert await pair.status_of("x") == "exited"
    assert not first.live
    assert not second.live


async def test_what_ended_is_remembered_again_with_its_log(tmp_path: Path) -> None:
    """As after yesterday's copy of the database was put back."""
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


@pytest.mark.parametrize("reason", ["old", "of another account"])
async def test_what_ended_long_ago_or_under_another_account_is_not_remembered(
    tmp_path: Path, reason: str
) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        (session,) = system.agent.sessions.values()
        system.agent.end(session.internal_id)
        await system.becomes("x", "exited")
        if reason == "old":
            session.end_time.seconds -= 8 * 24 * 60 * MINUTE
        else:
            session.create_time.seconds -= MINUTE
        await lose_database(system)
        assert (await system.start(id="x")).status == 201  # its report was taken in before


async def test_a_live_session_is_worth_more_than_a_remembered_one(pair: System) -> None:
    first, second = pair.agents
    older, newer = await twins(pair)
    older.create_time.seconds = newer.create_time.seconds - 1
    await pair.rows("UPDATE account SET created_ms=0")
    await first.restart()
    await eventually(lambda: older.internal_id in first.stopped)
    ended = copy.deepcopy(older)
    ended.state, ended.end_reason = agent_pb2.STATE_EXITED, agent_pb2.END_REASON_EXITED
    ended.end_time.CopyFrom(older.create_time)
    await second.stop()
    first.sessions[ended.internal_id] = ended
    await lose_database(pair)
    await pair.becomes("x", "exited")
    await second.restart()
    await pair.becomes("x", "running")
    row = await pair.rows("SELECT internal_id FROM session WHERE ended_ms IS NULL")
    assert row == [(newer.internal_id,)]


async def test_an_agent_writes_the_end_of_its_own_sessions_alone(tmp_path: Path) -> None:
    """Whatever it says whose session it was."""
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        (session,) = system.agent.live
        session.identity.account, session.identity.session_id = "bob", str(uuid.uuid4())
        system.agent.end(session.internal_id)
        await system.becomes("x", "exited")
        assert await system.rows(
            "SELECT account, object FROM event WHERE kind='session.ended'"
        ) == [("alice", "x")]


async def count_writes(system: System) -> None:
    """Count from now on how often a session's row is written; the control plane does not run."""
    await edit(
        system,
        "CREATE TABLE written (number INTEGER)",
        "CREATE TRIGGER count_writes AFTER UPDATE ON session"
        " BEGIN INSERT INTO written VALUES (1); END",
    )


def _move_port(session: agent_pb2.Session) -> None:
    session.ports[0].host_port += 1


CHANGES: dict[str, Callable[[agent_pb2.Session], object]] = {
    "": lambda _: None,
    "state": lambda session: setattr(session, "state", agent_pb2.STATE_RESTARTING),
    "host": lambda session: setattr(session, "host", "192.0.2.9"),
    "ports": _move_port,
    "injected_env": lambda session: session.injected_env.update({"TILTYARD_IP": "192.0.2.9"}),
    "started_ms": lambda session: session.create_time.FromSeconds(1_700_000_000),
    "exit_code": lambda session: setattr(session, "exit_code", 3),
    "detail": lambda session: setattr(session, "detail", "it waits"),
}


@pytest.mark.parametrize("changed", CHANGES)
async def test_what_a_host_tells_again_is_written_only_where_it_differs(
    tmp_path: Path, changed: str
) -> None:
    column = changed or "state"
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        before = await system.rows(f"SELECT {column} FROM session")
        (session,) = system.agent.live
        await system.stop_serving()
        await count_writes(system)
        CHANGES[changed](session)
        await system.serve()
        await eventually(lambda: _has_reconciled(system))
        assert (await system.rows("SELECT count(*) FROM written"))[0] == (int(bool(changed)),)
        assert (await system.rows(f"SELECT {column} FROM session") != before) is bool(changed)


async def test_the_environment_is_written_in_one_order(tmp_path: Path) -> None:
    """Protobuf gives the names of a map in another order in every process."""
    names = {f"TILTYARD_PORT_UDP_{number}": "1" for number in range(20)}
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="x")
        (session,) = system.agent.live
        session.injected_env.clear()
        session.injected_env.update(names)
        system.agent.change(session.internal_id, detail="reported again")
        await eventually(lambda: _has_told(system, "reported again"))
        [(written,)] = await system.rows("SELECT injected_env FROM session")
        assert written == json.dumps(names, sort_keys=True)


async def _has_told(system: System, detail: str) -> bool:
    return await system.rows("SELECT detail FROM session") == [(detail,)]


def _has_reconciled(system: System) -> bool:
    link = system.control_plane.fleet.host(system.agent.name)
    return link is not None and link.reconciled
