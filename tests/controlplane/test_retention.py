"""Retention, and the removal of accounts, work in portions."""

import asyncio
import time
from typing import Any

import pytest

from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import tokens
from controlplane.storage.tables.access.accounts import remove_portion
from controlplane.storage.tables.accounting import event_retention
from controlplane.storage.tables.sessions import session_rows, stop_orders
from tests.support.controlplane.system import (
    System,
    assert_error,
    eventually,
    eventually_equals,
)
from tests.support.controlplane.transactions import connection_of
from tests.support.fake_clock import FakeClock

ALICE = "/operator/account/alice"


class Changes:
    """Counts transactions and rows changed."""

    def __init__(self, system: System, monkeypatch: pytest.MonkeyPatch) -> None:
        self.most = 0
        self.transactions = 0
        run = Store.run

        async def counted(store: Store, transaction: Any, *args: Any) -> Any:
            def counting(db: Any) -> Any:
                before = connection_of(db).total_changes
                result = transaction(db, *args)
                self.most = max(self.most, connection_of(db).total_changes - before)
                self.transactions += 1
                return result

            return await run(store, counting)

        monkeypatch.setattr(Store, "run", counted)


async def add_sessions(system: System, count: int, ended_ms: int, players: int = 0) -> None:
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?1)"
        " INSERT INTO session(account, id, internal_id, state, application, tag, location, labels,"
        " external_id, nano_cpus, memory_bytes, created_ms, ended_ms, player_count)"
        " SELECT 'alice', ?2 || n, ?2 || n, 'exited', 'game', 'v1', 'local', '{}', '', 1, 1, 0,"
        " ?2, ?3 FROM n",
        count,
        ended_ms,
        players,
    )
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?1)"
        " INSERT INTO player(account, session, player) SELECT 'alice', id, n FROM session, n"
        " WHERE ended_ms = ?2 AND n <= player_count",
        players,
        ended_ms,
    )


async def test_removes_ended_sessions_and_players_in_portions(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await add_sessions(system, 5, 4, players=PORTION // 2)
    await add_sessions(system, 1, 5, players=3 * PORTION)
    await add_sessions(system, 2 * PORTION, 6)
    await add_sessions(system, 3, 100)
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
        " INSERT INTO stop_order SELECT n, 'a0', '', 0, 1 + (n < 3) * 200 FROM n",
        2 * PORTION,
    )
    changes = Changes(system, monkeypatch)
    for remove in (stop_orders.remove_confirmed, session_rows.remove_ended):
        await system.control_plane.store.run_in_portions(remove, 0.1)
    monkeypatch.undo()
    # A session is removed together with all of its players.
    assert changes.most <= 3 * PORTION + 1
    assert changes.transactions >= 7
    assert await system.rows("SELECT DISTINCT ended_ms FROM session") == [(100,)]
    assert await system.rows("SELECT 1 FROM player") == []
    assert await system.rows("SELECT count(*) FROM stop_order") == [(2,)]


async def test_removes_ended_tokens_in_portions_children_first(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    maker = system.tokens["alice"].split("_")[1]
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
        " INSERT INTO token(id, account, name, secret_hash, scopes, parent, created_ms, expire_ms)"
        " SELECT n, 'alice', n, x'', '[]', CASE n % 7 WHEN 0 THEN ? ELSE n - n % 7 END, 0, 3"
        " FROM n WHERE n >= 7",
        2 * PORTION,
        maker,
    )
    changes = Changes(system, monkeypatch)
    await system.control_plane.store.run_in_portions(tokens.remove_ended, 0.005)
    monkeypatch.undo()
    assert changes.most <= PORTION
    assert await system.rows("SELECT id FROM token WHERE account='alice'") == [(maker,)]


@pytest.mark.system(agents=0)
async def test_upkeep_removes_ended_sessions_and_stopped_attempts(system: System) -> None:
    await add_sessions(system, 1, ended_ms=1)
    await system.rows("INSERT INTO stop_order VALUES ('attempt', 'a0', '', 0, 1)")
    await system.control_plane.upkeep.forget()
    assert await system.rows("SELECT 1 FROM session") == []
    assert await system.rows("SELECT 1 FROM stop_order") == []


async def test_upkeep_tries_again_every_hour(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    await add_sessions(system, 1, ended_ms=1)
    await system.rows("UPDATE session SET agent='a0'")  # a restart removes those without one
    fail = "BEGIN SELECT RAISE(ABORT, 'as scripted'); END"
    await system.rows(f"CREATE TRIGGER keep BEFORE DELETE ON session {fail}")
    system.clock = clock = FakeClock(time.time())
    await system.restart()
    await clock.leap(3600)
    refused = "cannot delete old data yet kind=ended sessions"
    await eventually(lambda: caplog.text.count(refused) == 2)
    await system.rows("DROP TRIGGER keep")
    await clock.leap(3600)
    await eventually_equals(lambda: system.rows("SELECT 1 FROM session"), [])


async def test_finds_old_rows_by_index(system: System) -> None:
    def plans(db: Database) -> list[str]:
        traced: list[str] = []
        connection_of(db).set_trace_callback(traced.append)
        for module in (session_rows, tokens):
            module.remove_ended(db, 0.005)
        event_retention.remove_old(db, 0, before=0.005, now=1.0)
        stop_orders.remove_confirmed(db, 0.005)
        connection_of(db).set_trace_callback(None)
        found = [db.execute(f"EXPLAIN QUERY PLAN {sql}") for sql in traced if sql[:2] != "--"]
        return [row[3] for rows in found for row in rows]

    steps = await system.control_plane.store.run(plans)
    assert not [step for step in steps if step.startswith("SCAN ") and "json_each" not in step]
    indexes = ("session_by_end", "stop_order_by_confirmation")
    for index in (*indexes, "token_by_revocation", "token_by_expiry"):
        assert any(index in step for step in steps), index


async def test_removes_large_account_in_portions(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.make_application()
    await add_sessions(system, 2 * PORTION, 6, players=1)
    changes = Changes(system, monkeypatch)
    assert (await system.call("DELETE", ALICE)).status == 204
    monkeypatch.undo()
    assert changes.most <= PORTION + 1
    for table in ("session", "player", "application", "tag", "token"):
        assert await system.rows(f"SELECT 1 FROM {table} WHERE account='alice'") == [], table
    assert await system.rows("SELECT 1 FROM account WHERE name='alice'") == []


@pytest.fixture
async def broken_off(system: System, monkeypatch: pytest.MonkeyPatch) -> System:
    """A system where the removal of an account ended after its first portion."""
    await system.make_application()
    await add_sessions(system, 2 * PORTION, 6)
    portions = iter([True, False])

    def first(db: Any, name: str) -> int:
        return next(portions) and remove_portion(db, name)

    monkeypatch.setattr("controlplane.storage.tables.access.accounts.remove_portion", first)
    assert (await system.call("DELETE", ALICE)).status == 204
    monkeypatch.undo()
    assert await system.rows("SELECT count(*) FROM session") == [(PORTION,)]
    return system


async def test_account_under_removal_is_gone_for_all(broken_off: System) -> None:
    listed = (await broken_off.read("/operator/account"))["accounts"]
    assert [account["name"] for account in listed] == ["bob"]
    assert_error(await broken_off.call("DELETE", ALICE), 404)
    assert_error(await broken_off.call("PUT", ALICE, json={"quota": {}}), 404)
    for path in ("/session", "/application", "/region"):
        assert_error(await broken_off.call("GET", path), 401)
    body = {"account": "alice", "name": "new", "scopes": []}
    assert_error(await broken_off.call("POST", "/operator/token", json=body), 404)


async def test_new_account_of_the_name_has_nothing_of_the_one_under_removal(
    broken_off: System,
) -> None:
    path = "/operator/account"
    body = {"name": "alice"}
    made = (await broken_off.call("POST", path, json=body)).expect(201)
    assert await broken_off.read("/session?all=1", token=made.json["token"]) == {"sessions": []}
    assert_error(await broken_off.call("GET", "/session"), 401)
    assert_error(await broken_off.call("POST", path, json=body), 409)


async def test_restart_finishes_a_removal(broken_off: System) -> None:
    await broken_off.restart()
    while await broken_off.rows("SELECT 1 FROM account WHERE name='alice'"):
        await asyncio.sleep(0)
    assert await broken_off.rows("SELECT 1 FROM session") == []
    assert await broken_off.rows("SELECT 1 FROM token WHERE account='alice'") == []
