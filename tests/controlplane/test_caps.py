"""Limits per account, so that it does not impede others."""

import asyncio
import json

import pytest

from controlplane.api.operations.fields import MAX_JSON_BYTES
from controlplane.storage.tables.players import MAX_PLAYERS
from tests.support.controlplane.system import APPLICATION, Answer, System, assert_error

pytestmark = pytest.mark.system(application={}, session="m")


async def join(system: System, *players: str) -> Answer:
    body = {"session": "m", "players": players}
    return await system.call("PUT", "/session/player/join", json=body)


async def test_players_of_a_session_are_limited(system: System) -> None:
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (1) UNION ALL SELECT n + 1 FROM n WHERE n < ?)"
        " INSERT INTO player(account, session, player) SELECT 'alice', 'm', 'p' || n FROM n",
        MAX_PLAYERS - 2,
    )
    await system.rows("UPDATE session SET player_count=? WHERE id='m'", MAX_PLAYERS - 2)
    assert_error(await join(system, "a", "b", "c"), 422, "players")
    description = (await system.call("GET", "/session/m")).json["players"]
    assert description["joinedCount"] == MAX_PLAYERS - 2
    assert "a" not in description["joined"]
    full = (await join(system, "a", "p1", "b", "a", "p2")).expect(200)
    assert full.json["count"] == MAX_PLAYERS
    assert full.json["players"][:2] == ["p1", "p2"]
    assert full.json["players"][-3:] == [f"p{MAX_PLAYERS - 2}", "a", "b"]
    assert_error(await join(system, "c"), 422, "players")
    assert (await join(system, "b", "p1")).json["count"] == MAX_PLAYERS  # they have joined already
    body = {"session": "m", "players": ["p1"]}
    assert (await system.call("DELETE", "/session/player/leave", json=body)).status == 200
    assert (await join(system, "c")).json["players"][-1] == "c"


async def test_valid_tokens_of_an_account_are_limited(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.tokens.MAX_GOOD_TOKENS", 4)
    for number in range(2):
        await system.make_token(name=f"t{number}", scopes=[])
    await system.rows("UPDATE token SET revoked_ms=1 WHERE name='t0'")
    await system.rows("UPDATE token SET expire_ms=1 WHERE name='t1'")
    for number in range(3):
        await system.make_token(name=f"u{number}", scopes=[])
    for path, owner in (("/token", {}), ("/operator/token", {"account": "alice"})):
        for name, why in (("more", "the maximum"), ("u0", "of that name")):
            body = {"name": name, "scopes": [], **owner}
            refused = await system.call("POST", path, json=body)
            assert_error(refused, 409)
            assert why in refused.json["details"]
    another = await system.call("POST", "/token", account="bob", json={"name": "b", "scopes": []})
    assert another.status == 201
    await system.rows("UPDATE token SET revoked_ms=1 WHERE name='u0'")
    bodies = [{"name": f"m{number}", "scopes": []} for number in range(9)]
    answers = await asyncio.gather(*(system.call("POST", "/token", json=b) for b in bodies))
    assert sorted(answer.status for answer in answers) == [201] + [409] * 8


async def test_applications_of_an_account_are_limited(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.applications.MAX_APPLICATIONS", 2)
    await system.make_application(tag=None, name="second")
    refused = await system.call("POST", "/application", json=APPLICATION | {"name": "third"})
    assert_error(refused, 409)
    assert "the maximum" in refused.json["details"]
    assert "owner" not in refused.text
    taken = await system.call("POST", "/application", json=APPLICATION)
    assert_error(taken, 409)
    assert "exists already" in taken.json["details"]
    await system.make_application(tag=None, account="bob")


async def test_bytes_of_labels_are_limited(system: System) -> None:
    most = {"k": "x" * (MAX_JSON_BYTES - len(json.dumps({"k": ""})))}
    assert (await system.start(id="most", labels=most)).status == 201
    for labels in ({"k": most["k"] + "x"}, most | {"": ""}, {"k": "é" * (MAX_JSON_BYTES // 3)}):
        assert_error(await system.start(id="more", labels=labels), 422, "labels")
    body = {"size": 1, "labels": {"k": most["k"] + "x"}}
    assert_error(await system.call("PUT", "/warm-pool/game/local", json=body), 422, "labels")


async def test_enabled_tags_are_limited_over_all_applications_of_an_account(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.tags.MAX_ENABLED_TAGS", 3)
    for tag in ("v1", "v2", "v3"):
        system.registry.push("studio/game", tag)
    await system.make_application(tag=None, name="second", tagKeep=1)

    for application, tag in (("game", "v1"), ("game", "v2"), ("second", "v1")):
        assert (await system.enable_tag(tag, application)).status == 204
    refused = await system.enable_tag("v3")
    assert_error(refused, 409)
    assert "3 enabled tags, the maximum" in refused.json["details"]
    rows = await system.rows("SELECT name FROM tag WHERE application='game' AND enabled")
    assert sorted(name for (name,) in rows) == ["v1", "v2"]
    # Replacing a tag or enabling it again does not count.
    assert (await system.enable_tag("v3", "second")).status == 204
    assert (await system.enable_tag("v1")).status == 204
    await system.make_application(account="bob")
