"""Limits per account, so that it does not impede others, and of the size of answers.

An answer has at most 1 MiB, but for lists, which are sent in portions.
"""

import asyncio
import io
import json

import pytest

from controlplane.api.operations.bodies import MAX_BODY
from controlplane.api.operations.fields import MAX_JSON_BYTES
from controlplane.storage.tables.sessions.players import MAX_PLAYERS
from tests.support.controlplane.system import APPLICATION, System, assert_error, eventually
from tiltyard.agent.bounds import MAX_LOG

pytestmark = pytest.mark.system(application={})


async def test_valid_tokens_of_an_account_are_limited(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.access.tokens.MAX_GOOD_TOKENS", 4)
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
    monkeypatch.setattr(
        "controlplane.storage.tables.applications.applications.MAX_APPLICATIONS", 2
    )
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
    monkeypatch.setattr("controlplane.storage.tables.applications.tags.MAX_ENABLED_TAGS", 3)
    for tag in ("v1", "v2", "v3"):
        system.registry.push("studio/game", tag)
    await system.make_application(tag=None, name="second", tagKeep=1)

    for application, tag in (("game", "v1"), ("game", "v2"), ("second", "v1")):
        assert (await system.enable_tag(tag, application)).status == 204
    assert_error(await system.enable_tag("v3"), 409, details="3 enabled tags, the maximum")
    rows = await system.rows("SELECT name FROM tag WHERE application='game'")
    assert sorted(name for (name,) in rows) == ["v1", "v2"]
    # Replacing a tag or enabling it again does not count.
    assert (await system.enable_tag("v3", "second")).status == 204
    assert (await system.enable_tag("v1")).status == 204
    await system.make_application(account="bob")


async def test_images_of_withdrawn_tags_are_limited(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.storage.tables.applications.tags.MAX_IMAGES", 2)
    await system.make_application(tag=None, name="second", tagKeep=1)
    for tag in ("v1", "v2", "v3", "v4"):
        await system.enable(tag, "second")
    rows = await system.rows("SELECT name FROM tag WHERE application='second'")
    assert rows == [("v4",)]
    known = await system.rows("SELECT reference FROM image ORDER BY rowid")
    # The application of all tests has v1.
    digests = [system.registry.tags["studio/game", tag] for tag in ("v1", "v3", "v4")]
    assert [image.rpartition("@")[2] for (image,) in known] == digests


MAX_ANSWER = 1024 * 1024
WORST = "\U0001f3ae"  # A character that takes four bytes in a request and twelve in an answer


def _ids(count: int, character: str) -> list[str]:
    return [f"{number:{character}>256}" for number in range(count)]


@pytest.mark.parametrize(
    ("character", "most"),
    [
        ("x", MAX_PLAYERS),
        (WORST, 170),
        ("\x01", 341),
    ],
)
async def test_a_session_with_the_most_players_is_described_in_a_mebibyte(
    system: System, character: str, most: int
) -> None:
    labels = {"k": "\\" * 32_700}
    assert (await system.start(id="m", labels=labels, external_id=WORST * 256)).status == 201
    players = _ids(most, character)
    for first in range(0, most, 100):
        joined = (await system.join(*players[first : first + 100])).expect(200)
    assert joined.json["count"] == most
    described = await system.call("GET", "/session/m")
    assert described.json["players"]["joined"] == players
    assert max(len(joined.body), len(described.body)) <= MAX_ANSWER
    assert_error(await system.join("short", *_ids(most + 12, character)[most:]), 422, "players")
    assert (await system.read("/session/m"))["players"]["joinedCount"] == most
    assert (await system.join(*players[:9])).status == 200
    assert (await system.leave(players[0], session="m")).status == 200
    assert (await system.join(players[0])).json["players"][-1] == players[0]


async def test_a_call_with_the_most_players_is_answered_in_a_mebibyte(system: System) -> None:
    assert (await system.start(id="m")).status == 201
    for count, status in ((170, 200), (180, 422), (MAX_BODY // 1100, 422)):
        body = {"players": [*_ids(count, WORST), "p"]}
        sent = io.BytesIO(json.dumps(body, ensure_ascii=False).encode())
        assert (await system.join("p")).status == 200
        left = (await system.call("DELETE", "/session/player/leave", data=sent)).expect(status)
        assert len(left.body) <= MAX_ANSWER


async def test_a_report_with_the_longest_log_is_a_mebibyte_at_most(system: System) -> None:
    assert (await system.start(id="m")).status == 201
    system.agent.logs = [b"x", b"\x01" * (MAX_LOG - 1)]
    assert (await system.call("DELETE", "/session/m")).status == 204
    report = await system.call("GET", "/session/m/report")
    assert len(report.body) <= MAX_ANSWER
    assert len(report.json["log"]) == MAX_LOG
    assert report.json["log"].endswith("\x01")
    assert report.json["logTruncated"] is False


async def test_a_report_with_a_longer_log_is_not_believed(system: System) -> None:
    assert (await system.start(id="m")).status == 201
    system.agent.logs = [b"x" * (MAX_LOG + 1)]
    assert (await system.call("DELETE", "/session/m")).status == 204
    report = await system.call("GET", "/session/m/report")
    assert_error(report, 503)


async def test_a_long_list_of_applications_is_sent_in_portions(system: System) -> None:
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (100) UNION ALL SELECT n + 1 FROM n WHERE n < 300)"
        " INSERT INTO application(account, name, registry, repository, tag_keep, network_mode,"
        " node_pool, regions, limits, reserved_nano_cpus, reserved_memory_bytes, reserved_gpus,"
        " ports, created_ms)"
        " SELECT account, 'game' || n, registry, repository, tag_keep, network_mode,"
        " node_pool, ?, limits, reserved_nano_cpus, reserved_memory_bytes, reserved_gpus,"
        " ports, created_ms FROM application, n",
        json.dumps([f"{number:x<128}" for number in range(256)]),
    )
    found = await system.call("GET", "/application")
    assert found.headers["Transfer-Encoding"] == "chunked"
    assert len(found.body) > MAX_ANSWER
    names = [application["name"] for application in found.json["applications"]]
    assert names == ["game", *(f"game{number}" for number in range(100, 301))]


async def test_pages_of_all_sessions_are_sent_in_portions(system: System) -> None:
    for number in range(50):
        assert (await system.start(id=str(number), labels={"k": "x" * 60_000})).status == 201
    found = await system.call("GET", "/operator/session?limit=49")
    assert found.headers["Transfer-Encoding"] == "chunked"
    ids = [session["id"] for session in found.json["sessions"]]
    assert ids == [str(number) for number in reversed(range(1, 50))]
    last = await system.call("GET", f"/operator/session?before={found.json['before']}")
    assert "Transfer-Encoding" not in last.headers
    assert [session["id"] for session in last.json["sessions"]] == ["0"]
    assert last.json["before"] is None
    assert (await system.read("/operator/session?limit=50"))["before"] is None


async def test_an_agent_with_very_many_images_is_described_in_a_mebibyte(system: System) -> None:
    kept = list(system.agent.images)
    others = [f"registry.example/{'x' * 200}/{n:04}@sha256:{'0' * 64}" for n in range(4000)]
    system.agent.images = [*kept, *others]
    system.agent.report_images()
    await eventually(lambda: system.has("a0", others[-1]))
    described = await system.call("GET", "/operator/agent/a0")
    assert described.json["imageCount"] == len(kept) + len(others)
    assert described.json["images"] == sorted([*kept, *others])[:1000]
    assert len(described.body) <= MAX_ANSWER
