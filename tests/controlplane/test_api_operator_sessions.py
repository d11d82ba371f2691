"""Sessions of all accounts, as operators list and stop them."""

from typing import Any
from urllib.parse import quote

import pytest

from controlplane.domain.sessions.sessions import PageFilter
from controlplane.storage.tables.sessions.session_lists import page_query
from tests.support.controlplane.system import Answer, System, assert_error

ENTRY = {
    "id",
    "image",
    "tag",
    "location",
    "host",
    "created",
    "port",
    "status",
    "labels",
    "playerCount",
    "account",
    "agent",
    "ready",
}


@pytest.fixture
async def system(system: System) -> System:
    for account in ("alice", "bob"):
        await system.make_application(account=account)
    return system


async def page(system: System, query: str = "") -> Any:
    return await system.read(f"/operator/session?{query}")


async def ids(system: System, query: str = "") -> list[str]:
    return [session["id"] for session in (await page(system, query))["sessions"]]


async def stop(system: System, account: str, name: str) -> Answer:
    return await system.call("DELETE", f"/operator/session/{account}/{quote(name, safe='')}")


async def test_an_entry_is_that_of_the_accounts_list_with_account_and_agent(
    system: System,
) -> None:
    (await system.start(account="bob", id="b")).expect(201)
    own = (await system.read("/session", account="bob"))["sessions"]
    (entry,) = (await page(system, "account=bob"))["sessions"]
    assert set(entry) == ENTRY
    assert entry == own[0] | {"account": "bob", "agent": "a0", "ready": entry["ready"]}


async def test_sessions_are_filtered(system: System) -> None:
    for number, account in enumerate(("alice", "bob", "alice")):
        (await system.start(account=account, id=str(number))).expect(201)
    assert await ids(system) == ["2", "1", "0"]
    assert await ids(system, "account=alice") == ["2", "0"]
    assert await ids(system, "account=unknown") == []
    assert await ids(system, "agent=a0&location=local&image=game") == ["2", "1", "0"]
    for query in ("agent=a1", "location=elsewhere", "image=other"):
        assert await ids(system, query) == []
    assert (await stop(system, "alice", "2")).status == 204
    assert await ids(system) == ["1", "0"]
    assert await ids(system, "all=true") == ["2", "1", "0"]
    assert await ids(system, "all=true&account=alice") == ["2", "0"]
    every = (await page(system, "all=1"))["sessions"]
    assert [session["status"] for session in every] == ["exited", "running", "running"]


async def test_a_stop_works_as_the_accounts_and_names_the_operator(system: System) -> None:
    name = "match/1 ü"
    (await system.start(account="alice", id=name)).expect(201)
    (await system.start(account="bob", id=name)).expect(201)
    assert (await stop(system, "alice", name)).status == 204
    assert_error(await stop(system, "alice", name), 409)
    assert_error(await stop(system, "unknown", name), 404)
    assert await ids(system) == [name]
    assert len(system.agent.live) == 1
    stops = await system.events("session.stop_requested", "account, object, actor, address")
    assert stops == [("alice", name, system.operator_id, "127.0.0.1")]


@pytest.mark.parametrize(
    ("changes", "index"),
    [
        ({}, "session_by_end (ended_ms=? AND rowid<?)"),
        ({"account": "a"}, "live_session_by_account (account=? AND ended_ms=? AND number<?)"),
        ({"agent": "a"}, "live_session_by_agent (agent=? AND ended_ms=? AND rowid<?)"),
        ({"location": "a"}, "session_by_end (ended_ms=? AND rowid<?)"),
    ],
)
async def test_a_page_is_read_from_its_index_and_not_sorted(
    system: System, changes: dict[str, Any], index: str
) -> None:
    sql, values = page_query(PageFilter(limit=10, before=5, **changes))
    plan = [row[3] for row in await system.rows(f"EXPLAIN QUERY PLAN {sql}", **values)]
    chosen = [step.replace("COVERING ", "") for step in plan]
    assert f"SEARCH session USING INDEX {index}" in chosen
    assert not [step for step in plan if "TEMP B-TREE" in step]
