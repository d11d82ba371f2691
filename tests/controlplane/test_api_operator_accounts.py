"""Accounts, as operators create, limit and remove them."""

import asyncio
from typing import Any

import pytest

from controlplane.storage.tables.access import tokens
from controlplane.storage.tables.applications import applications
from controlplane.storage.tables.applications.tags import enable_tag
from controlplane.storage.tables.sessions.sessions import reserve
from tests.support.controlplane.system import APPLICATION, Answer, System, assert_error, token_id
from tests.support.controlplane.transactions import Go, intercept
from tiltyard.runtime.clock import to_ms

NO_LIMIT: dict[str, None] = {"sessions": None, "cpu": None, "ram": None}


async def ask(system: System, method: str, account: str = "", /, **body: Any) -> Answer:
    path = "/operator/account" + (f"/{account}" if account else "")
    more: dict[str, Any] = {"json": body} if method in {"POST", "PUT"} else {}
    return await system.call(method, path, **more)


async def listed(system: System, name: str) -> Any:
    accounts = (await system.read("/operator/account"))["accounts"]
    return next((account for account in accounts if account["name"] == name), None)


async def events(system: System, kind: str) -> list[tuple[Any, ...]]:
    return await system.events(kind, "account, actor, address, object")


async def names_alice(system: System) -> dict[str, bool]:
    """Return of each table that names accounts whether it names hers."""
    tables = await system.rows(
        "SELECT t.name FROM sqlite_master AS t, pragma_table_info(t.name) AS c"
        " WHERE t.type='table' AND c.name='account'"
    )
    has_one = "SELECT 1 FROM {} WHERE account='alice'"
    return {name: bool(await system.rows(has_one.format(name))) for (name,) in tables}


async def only_the_log_names_alice(system: System) -> bool:
    """Return whether her events, and where a later account of her name begins, are all."""
    naming = {table for table, names in (await names_alice(system)).items() if names}
    return naming == {"event", "event_start"}


async def test_an_account_is_created_with_a_token_of_all_scopes(system: System) -> None:
    before = to_ms(system.clock.time())
    answer = (await ask(system, "POST", name="studio")).expect(201)
    assert answer.headers["Cache-Control"] == "no-store"
    assert set(answer.json) == {"name", "id", "token"}
    assert answer.json["name"] == "studio"
    token = answer.json["token"]
    assert answer.json["id"] == token_id(token)
    found = await listed(system, "studio")
    assert before <= found.pop("created") <= to_ms(system.clock.time())
    usage = {"sessions": 0, "cpu": 0, "ram": 0}
    assert found == {"name": "studio", "quota": NO_LIMIT, "usage": usage}
    for path in ("/session", "/application", "/region"):
        assert (await system.call("GET", path, token=token)).status == 200
    made = ("studio", system.operator_id, "127.0.0.1", "studio")
    assert (await events(system, "account.created"))[-1] == made
    assert (await events(system, "token.created"))[-1] == (*made[:3], token_id(token))


async def test_concurrent_requests_create_an_account_once(system: System) -> None:
    answers = await asyncio.gather(*(ask(system, "POST", name="one") for _ in range(50)))
    (made,) = (answer.json["token"] for answer in answers if answer.status == 201)
    for answer in answers:
        if answer.status != 201:
            assert_error(answer, 409)
    sql = "SELECT id FROM token WHERE account='one'"
    assert await system.rows(sql) == [(token_id(made),)]
    assert (await system.call("GET", "/session", token=made)).status == 200


async def test_the_quota_counts_live_sessions(system: System) -> None:
    await system.make_application(
        reservation={"cpu": 0.5, "ram": 100}, limits={"cpu": 1, "ram": 256}
    )
    for number in range(3):
        assert (await system.start(id=str(number))).status == 201
    assert (await system.call("DELETE", "/session/0")).status == 204
    assert (await listed(system, "alice"))["usage"] == {"sessions": 2, "cpu": 1.0, "ram": 200.0}
    assert (await listed(system, "bob"))["usage"] == {"sessions": 0, "cpu": 0, "ram": 0}


@pytest.mark.parametrize(
    ("quota", "limit"),
    [
        ({"sessions": 1}, "sessions"),
        ({"cpu": 1.5}, "cores"),
        ({"ram": 511.5}, "memory"),
        ({"sessions": 0}, "sessions"),
    ],
)
async def test_a_lower_quota_stops_nothing_and_refuses_the_next_start(
    system: System, quota: dict[str, float], limit: str
) -> None:
    await system.make_application()
    assert (await system.start(id="first")).status == 201
    assert (await ask(system, "PUT", "alice", quota=quota)).status == 204
    assert (await listed(system, "alice"))["quota"] == NO_LIMIT | quota
    assert_error(await system.start(id="second"), 402, details=limit)
    assert await system.status_of("first") == "running"
    # It replaces the whole quota: absent fields are unlimited.
    assert (await ask(system, "PUT", "alice", quota={})).status == 204
    assert (await listed(system, "alice"))["quota"] == NO_LIMIT
    assert (await system.start(id="second")).status == 201
    changed = ("alice", system.operator_id, "127.0.0.1", "alice")
    assert await events(system, "account.changed") == [changed, changed]


async def test_an_account_is_removed_with_its_objects_once_nothing_runs(system: System) -> None:
    await system.make_application()
    await system.make_application(account="bob")
    post, gate = await system.held_start(id="s", labels={"mode": "duel"})
    assert_error(await ask(system, "DELETE", "alice"), 409)
    gate.set()
    assert (await post).status == 201
    assert (await system.join("p", session="s")).status == 200
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 0})).expect(204)
    child = await system.make_token(name="child", scopes=["session:read"])
    webhook = {"url": "https://example.com/hook"}
    (await system.call("POST", "/webhook", json=webhook)).expect(201)
    naming = await names_alice(system)
    assert not naming.pop("event_start")
    assert all(naming.values())
    assert_error(await ask(system, "DELETE", "alice"), 409)
    assert (await system.call("GET", "/session/s", token=child)).status == 200
    assert (await system.call("DELETE", "/session/s")).status == 204
    assert (await ask(system, "DELETE", "alice")).status == 204
    for token in (child, system.tokens["alice"]):
        assert_error(await system.call("GET", "/session", token=token), 401)
    assert await only_the_log_names_alice(system)
    assert (await system.rows("PRAGMA foreign_key_check")) == []
    # Hosts are still asked to remove its image, which bob's application has as well.
    owners = await system.rows("SELECT account FROM image ORDER BY account")
    assert owners == [("",), ("bob",)]
    removed = ("alice", system.operator_id, "127.0.0.1", "alice")
    assert await events(system, "account.removed") == [removed]
    assert await system.events("account.removed", "data") == [('{"tokens": 2}',)]
    assert_error(await ask(system, "DELETE", "alice"), 404)
    # Other accounts' objects and the audit stay.
    assert (await system.read("/application", account="bob"))["applications"]
    assert await events(system, "application.created")
    # The name is free; nothing of the old account comes back with it.
    token = (await ask(system, "POST", name="alice")).json["token"]
    assert await system.read("/session?all=1", token=token) == {"sessions": []}
    assert_error(await system.call("GET", "/session", token=child), 401)


async def test_a_removed_account_revokes_only_its_valid_tokens(system: System) -> None:
    (await ask(system, "POST", name="studio")).expect(201)
    wanted = {"account": "studio", "name": "ended", "scopes": []}
    ended = (await system.call("POST", "/operator/token", json=wanted)).expect(201).json["id"]
    (await system.call("DELETE", f"/operator/token/{ended}")).expect(200)
    assert (await ask(system, "DELETE", "studio")).status == 204
    assert await system.events("account.removed", "data") == [('{"tokens": 1}',)]


@pytest.mark.parametrize(
    ("transaction", "call", "status"),
    [
        (reserve, ("/session", {"location": "local", "image": "game"}), 401),
        (applications.create, ("/application", APPLICATION | {"name": "late"}), 401),
        (enable_tag, ("/application/game/tags", {"tag": "v1"}), 404),
        (tokens.make, ("/token", {"name": "late", "scopes": []}), 401),
    ],
    ids=["session", "application", "tag", "token"],
)
async def test_an_account_removed_during_a_call_gets_nothing(
    system: System,
    monkeypatch: pytest.MonkeyPatch,
    transaction: object,
    call: tuple[str, dict[str, Any]],
    status: int,
) -> None:
    await system.make_application()

    async def late(go: Go) -> Any:
        assert (await ask(system, "DELETE", "alice")).status == 204
        return await go()

    intercept(monkeypatch, transaction, late)
    assert_error(await system.call("POST", call[0], json=call[1]), status)
    assert await only_the_log_names_alice(system)
    assert not system.agent.started
