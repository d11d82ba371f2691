"""Limits per account, so that it does not impede others."""

import asyncio
import json

import pytest

from controlplane.api.operations.fields import MAX_JSON_BYTES
from tests.support.controlplane.system import APPLICATION, System, assert_error

pytestmark = pytest.mark.system(application={})


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
            assert_error(await system.call("POST", path, json=body), 409, details=why)
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
    assert_error(refused, 409, details="the maximum")
    assert "owner" not in refused.text
    taken = await system.call("POST", "/application", json=APPLICATION)
    assert_error(taken, 409, details="exists already")
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
    assert_error(await system.enable_tag("v3"), 409, details="3 enabled tags, the maximum")
    rows = await system.rows("SELECT name FROM tag WHERE application='game' AND enabled")
    assert sorted(name for (name,) in rows) == ["v1", "v2"]
    # Replacing a tag or enabling it again does not count.
    assert (await system.enable_tag("v3", "second")).status == 204
    assert (await system.enable_tag("v1")).status == 204
    await system.make_application(account="bob")
