"""The oldest rows are removed beyond a number, of an account alone if they belong to one."""

import json
from collections.abc import Collection

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.tokens import TokenRequest, mint
from controlplane.retention import surplus
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.access import tokens
from controlplane.storage.tables.accounting import event_retention
from controlplane.storage.tables.sessions import session_rows
from tests.support.controlplane.scrapes import Scraped
from tests.support.controlplane.system import System, eventually_equals, token_id

FEW = pytest.mark.system(kind=Scraped, max_ended_sessions=3, max_audit_entries=4, application={})


async def add_ended(system: System, account: str, count: int, labels: str = "{}") -> None:
    """Add ended sessions 0, 1, …; each one ended later."""
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n + 1 < :count)"
        " INSERT INTO session(account, id, state, application, tag, location, labels,"
        " external_id, nano_cpus, memory_bytes, created_ms, ended_ms)"
        " SELECT :account, n || '', 'exited', 'game', 'v1', 'local', :labels, '', 1, 1, 1, n + 1"
        " FROM n",
        account=account,
        count=count,
        labels=labels,
    )


async def ended(system: System, account: str = "alice") -> list[str]:
    sql = "SELECT id FROM session WHERE account=? AND ended_ms IS NOT NULL ORDER BY ended_ms"
    return [session_id for (session_id,) in await system.rows(sql, account)]


async def removed_early(system: Scraped, table: str) -> float:
    return (await system.scrape()).sum("database_rows_removed_early_total", table=table)


@pytest.mark.system(application={}, session="m")
async def test_players_go_with_the_end_of_their_session(system: System) -> None:
    assert (await system.start(id="n")).status == 201
    for session in ("m", "n"):
        (await system.join("ann", "bo", session=session)).expect(200)
    (await system.call("DELETE", "/session/m")).expect(204)
    assert await system.rows("SELECT DISTINCT session FROM player") == [("n",)]
    described = await system.read("/session/m")
    assert described["players"] == {"joined": [], "joinedCount": 0}
    listed = {one["id"]: one["playerCount"] for one in await sessions(system)}
    assert listed == {"m": 0, "n": 2}
    assert (await system.leave("ann", session="m")).json["count"] == 0


async def sessions(system: System) -> list[dict[str, object]]:
    found: list[dict[str, object]] = (await system.read("/session?all=1"))["sessions"]
    return found


@FEW
async def test_oldest_ended_sessions_of_the_account_are_removed(system: Scraped) -> None:
    assert (await system.start(id="live")).status == 201
    await add_ended(system, "alice", 2500)
    await add_ended(system, "bob", 3)
    await system.control_plane.surplus.remove_surplus(["alice", "bob"])
    assert await ended(system) == ["2497", "2498", "2499"]
    assert await ended(system, "bob") == ["0", "1", "2"]
    assert await system.status_of("live")
    assert await removed_early(system, "session") == 2497


async def test_bytes_of_ended_sessions_are_bounded(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "MAX_ENDED_BYTES", 10_000)
    await add_ended(system, "alice", 20, json.dumps({"k": "x" * 3000}))
    await system.control_plane.surplus.remove_surplus(["alice"])
    assert await ended(system) == ["17", "18", "19"]


@pytest.mark.system(kind=Scraped)
async def test_newest_confirmed_stop_orders_are_kept(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "MAX_CONFIRMED_STOPS", 3)
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (0) UNION ALL SELECT n + 1 FROM n WHERE n + 1 < 2500)"
        " INSERT INTO stop_order SELECT 'attempt' || n, 'gone', 'unanswered', 0, n + 1 FROM n"
    )
    await system.rows("INSERT INTO stop_order VALUES ('pending', 'gone', 'unanswered', 0, NULL)")
    await system.control_plane.surplus.remove_stops()
    left = await system.rows("SELECT internal_id FROM stop_order ORDER BY confirmed_ms")
    assert left == [("pending",), ("attempt2497",), ("attempt2498",), ("attempt2499",)]
    assert await removed_early(system, "stop_order") == 2497


@FEW
async def test_many_ends_need_not_wait_for_the_next_round(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "CHANGES", 20)
    for number in range(8):
        assert (await system.start(id=f"s{number}")).status == 201
        (await system.call("DELETE", f"/session/s{number}")).expect(204)
    await add_ended(system, "alice", 20)
    changed = [Change(Topic.SESSION, ("alice", str(number))) for number in range(20)]
    system.control_plane.store.changes.publish(changed)
    await eventually_equals(lambda: ended(system), ["s5", "s6", "s7"])


@FEW
async def test_ends_during_a_removal_need_not_wait_for_the_next_round(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(surplus, "CHANGES", 20)
    await add_ended(system, "alice", 40)
    await system.rows("UPDATE session SET ended_ms=NULL WHERE ended_ms > 20")
    remove_numbers = session_rows.remove_numbers

    def remove_while_others_end(db: Database, numbers: Collection[int]) -> int:
        removed = remove_numbers(db, numbers)
        others = db.execute(
            "UPDATE session SET ended_ms=id+1 WHERE ended_ms IS NULL RETURNING id"
        ).fetchall()
        for (session_id,) in others:
            db.changed(Topic.SESSION, "alice", session_id)
        return removed

    monkeypatch.setattr(session_rows, "remove_numbers", remove_while_others_end)
    changed = [Change(Topic.SESSION, ("alice", str(number))) for number in range(20)]
    system.control_plane.store.changes.publish(changed)
    await eventually_equals(lambda: ended(system), ["37", "38", "39"])


@FEW
async def test_oldest_audit_entries_of_the_account_are_removed(system: Scraped) -> None:
    for number in range(6):
        await system.make_token(name=f"t{number}", scopes=[])
    before = await system.rows("SELECT count(*) FROM event WHERE account != 'alice'")
    await system.control_plane.surplus.remove_surplus(["alice"])
    names = "SELECT data->>'name' FROM event WHERE account='alice' AND kind LIKE 'token.%'"
    assert await system.rows(names) == [("t2",), ("t3",), ("t4",), ("t5",)]
    assert await system.rows("SELECT count(*) FROM event WHERE account != 'alice'") == before


@FEW
async def test_each_class_of_events_has_a_number_of_its_own(system: Scraped) -> None:
    for number in range(6):
        await system.start(id=f"s{number}")
        await system.make_token(name=f"t{number}", scopes=[])
    await system.control_plane.surplus.remove_surplus(["alice"])
    count = "SELECT count(*) FROM event WHERE account='alice' AND kind LIKE ?"
    assert await system.rows(count, "session.%") == [(4,)]
    assert await system.rows(count, "token.%") == [(4,)]
    assert await system.rows(count, "account.%") == [(1,)], "kept by age alone"
    newest = "SELECT object FROM event WHERE account='alice' AND kind LIKE 'session.%'"
    assert ("s5",) in await system.rows(newest)


@FEW
async def test_surplus_events_are_removed_in_portions(
    system: Scraped, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(event_retention, "PORTION", 2)
    for number in range(12):
        await system.make_token(name=f"t{number}", scopes=[])
    await system.control_plane.surplus.remove_surplus(["alice"])
    names = "SELECT data->>'name' FROM event WHERE kind='token.created' AND account='alice'"
    assert await system.rows(names) == [("t8",), ("t9",), ("t10",), ("t11",)]


async def test_oldest_ended_tokens_of_the_account_are_removed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_ENDED_TOKENS", 2)
    store = system.control_plane.store
    maker = Actor(token_id(system.tokens["alice"]))
    for number in range(6):
        wanted = TokenRequest(f"t{number}", frozenset(), 1)
        await store.run(tokens.make, maker, mint(), wanted=wanted, now=100.0 + 10 * number)
    kept = "SELECT name FROM token WHERE account='alice' ORDER BY created_ms"
    assert await system.rows(kept) == [("t3",), ("t4",), ("t5",), ("initial",)]
    assert (await system.call("GET", "/session")).status == 200


async def test_ended_token_outlasts_those_made_from_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tokens, "MAX_ENDED_TOKENS", 1)
    parent = await system.make_token(name="parent", scopes=["token:write"])
    await system.make_token(token=parent, name="child", scopes=[])
    await system.rows("UPDATE token SET revoked_ms=1 WHERE name='parent'")
    await system.rows("UPDATE token SET revoked_ms=2 WHERE name='child'")
    await system.make_token(name="other", scopes=[])
    kept = await system.rows("SELECT name FROM token WHERE account='alice' ORDER BY name")
    assert kept == [("initial",), ("other",), ("parent",)]


@FEW
async def test_file_does_not_grow_while_rows_come_and_go(system: Scraped) -> None:
    pages = list[int]()
    for _ in range(6):
        await add_ended(system, "alice", 500, json.dumps({"k": "x" * 4000}))
        await system.control_plane.surplus.remove_surplus(["alice"])
        await system.rows("DELETE FROM session WHERE ended_ms IS NOT NULL")
        [(count,)] = await system.rows("PRAGMA page_count")
        pages.append(count)
    assert pages[-1] <= 1.05 * pages[1]
