"""GET /operator/audit: every change, with its token and address."""

import asyncio
from functools import partial
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor, AuditFilter
from controlplane.settings.model import MOST_DAYS
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.accounting import audit as audit_queries
from controlplane.storage.tables.accounting.audit import page_query, scan_query
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.events import probe
from tests.support.controlplane.system import (
    APPLICATION,
    System,
    assert_error,
    eventually,
    token_id,
)
from tests.support.controlplane.waits import until_called_off
from tiltyard.runtime.clock import to_ms

ADDRESS = "203.0.113.7"
FORWARDED = {"X-Forwarded-For": f"6.6.6.6, {ADDRESS}"}
DAY = 24 * 3600
Event = tuple[float, str, str, Actor, str]

pytestmark = pytest.mark.system(
    behind_proxy=("127.0.0.1",),
    audit_retention_days=MOST_DAYS,  # The upkeep, which runs at any time, keeps what is written
)


async def audit(system: System, query: str = "") -> list[Any]:
    return list((await page(system, query))["events"])


async def audited_calls(system: System) -> list[Any]:
    """Read the events of alice's calls, without those of hosts."""
    caller = token_id(system.tokens["alice"])
    return [event for event in await audit(system) if event["token"] == caller]


async def page(system: System, query: str) -> Any:
    return await system.read(f"/operator/audit?{query}")


async def write(system: System, *events: Event) -> None:
    def transaction(db: Database) -> None:
        for now, kind, account, actor, subject in events:
            db.append(probe(kind, account, subject, actor=actor, now=now))

    await system.control_plane.store.run(transaction)


async def test_every_change_of_a_caller_names_token_and_address(system: System) -> None:
    token = system.tokens["alice"]
    start = {"location": "local", "image": "game", "id": "s"}
    await system.make_application(tag=None, name="first")
    system.registry.push("studio/game", "v1")
    calls: list[tuple[str, str, Any, str, str]] = [
        ("POST", "/application", APPLICATION, "application.created", "game"),
        ("PUT", "/application/game", {"tagKeep": 9}, "application.changed", "game"),
        ("POST", "/application/game/tags", {"tag": "v1"}, "tag.enabled", "game:v1"),
        ("POST", "/session", start, "session.starting", "s"),
        ("DELETE", "/session/s", None, "session.stop_requested", "s"),
    ]
    for method, path, body, kind, name in calls:
        answer = await system.call(method, path, json=body, headers=FORWARDED)
        assert answer.status in {200, 201, 204}, answer.text
        (event,) = await audit(system, f"kind={kind}&object={name}")
        assert event["account"] == "alice"
        assert event["token"] == token_id(token)
        assert event["address"] == ADDRESS
        if kind == "tag.enabled":
            image = f"{system.registry.address}/studio/game@{event['data']['digest']}"
            await eventually(partial(system.has, "a0", image))
    new = {"name": "x", "scopes": ["logs:read", "session:read"]}
    asked = new | {"scopes": ["session:read", "logs:read", "session:read"]}
    made = await system.call("POST", "/token", json=asked, headers=FORWARDED)
    (event,) = await audit(system, f"object={token_id(made.json['token'])}")
    assert event["kind"] == "token.created"
    assert event["account"] == "alice"
    assert event["token"] == token_id(token)
    assert event["address"] == ADDRESS
    assert event["data"] == new | {"expires": None}
    assert made.json["token"] not in str(await audit(system))


async def test_joining_and_leaving_players_are_not_audited(system: System) -> None:
    await system.make_application()
    await system.start(id="s")
    before = await audited_calls(system)
    for change in (system.join, system.leave):
        for players in ("p", "pq"):
            assert (await change(*players, session="s")).status == 200
    assert await audited_calls(system) == before


async def test_changes_of_the_product_itself_have_no_address(system: System) -> None:
    await system.make_application()
    await system.start(id="s")
    system.agent.end(system.agent.live[0].internal_id)
    await system.becomes("s", "exited")
    (ended,) = await audit(system, "kind=session.ended")
    assert ended["object"] == "s"
    assert ended["token"] == "a0"
    assert ended["address"] is None
    (init,) = await audit(system, "kind=account.created&account=alice")
    assert init["token"] == "init"
    assert init["address"] is None
    (initial,) = await audit(system, "kind=token.created&token=init&account=bob")
    assert initial["object"] == token_id(system.tokens["bob"])
    (operators,) = [e for e in await audit(system, "kind=token") if e["account"] is None]
    assert operators["object"] == system.operator_id


async def test_a_stop_during_a_start_names_its_caller(system: System) -> None:
    await system.make_application()
    post, gate = await system.held_start(id="x")
    path = "/operator/session/alice/x"
    stop = asyncio.create_task(system.call("DELETE", path, headers=FORWARDED))
    await until_called_off(system)
    system.agent.after_start = refusing("ENGINE_TIMEOUT")
    gate.set()
    assert (await stop).status == 204
    assert_error(await post, 409)
    kinds = {event["kind"]: event for event in await audit(system, "kind=session&object=x")}
    assert set(kinds) == {"session.starting", "session.stop_requested", "session.start_failed"}
    assert kinds["session.starting"]["token"] == token_id(system.tokens["alice"])
    assert kinds["session.stop_requested"]["token"] == system.operator_id
    assert kinds["session.stop_requested"]["address"] == ADDRESS
    assert kinds["session.start_failed"]["token"] == "controlplane"


async def test_a_failed_authentication_is_in_the_log_and_not_in_the_audit(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    before = await audit(system)
    bad = system.tokens["bob"][:-1] + ("1" if system.tokens["bob"].endswith("0") else "0")
    for token in (bad, "nonsense-of-mine"):
        answer = await system.call("GET", "/session", token=token, headers=FORWARDED)
        assert_error(answer, 401)
        reported = f"request={answer.json['identifier']}"
        assert any("status=401" in line and reported in line for line in caplog.messages)
        assert f"address={ADDRESS} status=401" in caplog.text
        assert token not in caplog.text
    assert await audit(system) == before


async def test_pages_are_filtered(system: System) -> None:
    probes = [
        ("probe.made", "alice", "one", "a"),
        ("probe.ended", "alice", "two", "a"),
        ("probe.made", "bob", "one", "b"),
        ("probes.made", "bob", "one", "b"),
        ("probe.third", "carol", "three", "c"),
    ]
    for n, (kind, account, actor, name) in enumerate(probes):
        await write(system, (n / 1000, kind, account, Actor(actor, "192.0.2.1"), name))

    async def times(query: str) -> list[int]:
        return [event["time"] for event in await audit(system, query)]

    assert await times("kind=probe") == [4, 2, 1, 0]
    assert await times("kind=probe.made") == [2, 0]
    assert await times("kind=prob") == []
    assert await times("kind=%25") == []
    assert await times("account=bob&kind=probe") == [2]
    assert await times("object=a&token=one") == [0]
    assert await times("token=three") == [4]
    for limit, sizes in ((2, [2, 2]), (3, [3, 1]), (4, [4]), (1000, [4])):
        pages = [await page(system, f"kind=probe&limit={limit}")]
        while pages[-1]["before"] is not None:
            query = f"kind=probe&limit={limit}&before={pages[-1]['before']}"
            pages.append(await page(system, query))
        assert [len(found["events"]) for found in pages] == sizes
        assert [event["time"] for found in pages for event in found["events"]] == [4, 2, 1, 0]
    assert await page(system, "kind=none") == {"events": [], "before": None}
    everything = await audit(system, "limit=1000")
    sequences = [event["sequence"] for event in everything]
    assert sequences == sorted(sequences, reverse=True)
    assert everything[0] == {
        "sequence": sequences[0],
        "time": 4,
        "kind": "probe.third",
        "account": "carol",
        "token": "three",
        "address": "192.0.2.1",
        "object": "c",
        "data": {},
    }


async def test_a_page_has_100_events_unless_more_are_requested(system: System) -> None:
    await write(system, *((n / 1000, "p.q", "", Actor("x"), "o") for n in range(1100)))
    assert len(await audit(system)) == 100
    assert len(await audit(system, "limit=1000")) == 1000
    for query in ("limit=0", "limit=1001", "limit=x", "before=-1", f"before={2**63}", "kind="):
        answer = await system.call("GET", f"/operator/audit?{query}")
        assert_error(answer, 422, query.partition("=")[0])


@pytest.mark.parametrize(
    ("changes", "step"),
    [
        ({"account": "a"}, "SEARCH event USING INDEX event_by_account (account=?{and})"),
        ({"object": "a"}, "SEARCH event USING INDEX event_by_object (object=?{and})"),
        ({}, "{search}"),
    ],
)
async def test_a_page_is_read_from_its_index_and_not_sorted(
    system: System, changes: dict[str, Any], step: str
) -> None:
    for before, bound, search in (
        (None, "", "SCAN event"),
        (500, " AND rowid<?", "SEARCH event USING INTEGER PRIMARY KEY (rowid<?)"),
    ):
        wanted = AuditFilter(limit=10, before=before, **changes)
        sql, values = page_query(wanted, after=-1)
        plan = [row[3] for row in await system.rows(f"EXPLAIN QUERY PLAN {sql}", **values)]
        assert plan == [step.replace("{and}", bound).replace("{search}", search)]


@pytest.mark.parametrize(
    "query", ["kind=p.q", "kind=p", "token=x", "account=a&kind=p", "object=o&account=a"]
)
async def test_a_filter_without_an_index_looks_at_a_bounded_number_of_events(
    system: System, monkeypatch: pytest.MonkeyPatch, query: str
) -> None:
    found = (0.001, "p.q", "a", Actor("x"), "o")
    others = [(0.002, "r.s", "a", Actor("y"), "o"), (0.002, "r.s", "b", Actor("y"), "o")]
    await write(system, found, *others * 10)
    monkeypatch.setattr(audit_queries, "SCANNED", 5)
    pages = [await page(system, query)]
    while pages[-1]["before"] is not None:
        pages.append(await page(system, f"{query}&before={pages[-1]['before']}"))
    events = [event for each in pages for event in each["events"]]
    assert found[1] in {event["kind"] for event in events}
    sequences = [event["sequence"] for event in events]
    assert sequences == sorted(set(sequences), reverse=True)
    assert len(pages) > 2
    assert all(len(each["events"]) <= 5 for each in pages)


async def test_a_bounded_page_reads_no_event_beyond_its_bound(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit_queries, "SCANNED", 5)
    await write(system, *[(0.001, "p.q", "a", Actor("x"), "o")] * 40)
    wanted = AuditFilter(limit=10, kind="none.such")
    scan, scan_values = scan_query(wanted)
    [(bound,)] = await system.rows(scan, **scan_values)
    sql, values = page_query(wanted, after=bound)
    plan = [row[3] for row in await system.rows(f"EXPLAIN QUERY PLAN {sql}", **values)]
    assert plan == ["SEARCH event USING INTEGER PRIMARY KEY (rowid>?)"]
    newest = await system.rows("SELECT max(sequence) FROM event")
    assert newest == [(bound + 5,)]


async def test_tokens_ended_a_week_ago_are_deleted_with_their_children(system: System) -> None:
    now = to_ms(system.clock.time())
    made: dict[str, str] = {}
    for name in ("revoked", "expired", "lately", "good"):
        root = made[name] = await system.make_token(name=name, scopes=["token:write"])
        made[f"{name}-child"] = await system.make_token(root, name=f"{name}-child", scopes=[])
    week = 7 * DAY * 1000
    for name, column, at in (
        ("revoked", "revoked_ms", now - week - 1000),
        ("expired", "expire_ms", now - week - 1000),
        ("lately", "revoked_ms", now - week + 60_000),
    ):
        sql = f"UPDATE token SET {column}=? WHERE name IN (?, ?)"
        await system.rows(sql, at, name, f"{name}-child")
    await system.control_plane.upkeep.forget()
    names = {row[0] for row in await system.rows("SELECT name FROM token WHERE name<>'initial'")}
    assert names == {"lately", "lately-child", "good", "good-child"}
    # Events of deleted tokens stay readable.
    (event,) = await audit(system, f"object={token_id(made['revoked-child'])}")
    assert event["token"] == token_id(made["revoked"])
    assert event["data"]["name"] == "revoked-child"


@pytest.mark.system
async def test_upkeep_survives_a_failure(system: System, caplog: pytest.LogCaptureFixture) -> None:
    await write(system, (0.001, "old.x", "", Actor("x"), "o"))
    await system.rows("UPDATE token SET revoked_ms=1 WHERE account='bob'")
    no = "BEGIN SELECT RAISE(ABORT, 'no'); END"
    await system.rows(f"CREATE TRIGGER keep BEFORE DELETE ON token {no}")
    await system.control_plane.upkeep.forget()
    assert "cannot delete old data yet kind=ended tokens" in caplog.text
    assert await system.rows("SELECT 1 FROM event WHERE kind='old.x'") == []
