"""How large answers become: at most 1 MiB, but for lists, which are sent in portions."""

import io
import json

import pytest

from controlplane.api.operations.bodies import MAX_BODY
from controlplane.api.resources.reports import LOG_BYTES
from controlplane.storage.tables.players import MAX_PLAYERS
from tests.support.controlplane.system import System, assert_error, eventually

MAX_ANSWER = 1024 * 1024
WORST = "\U0001f3ae"  # A character that takes four bytes in a request and twelve in an answer

pytestmark = pytest.mark.system(application={})


def _ids(count: int, character: str) -> list[str]:
    return [f"{number:{character}>256}" for number in range(count)]


@pytest.mark.parametrize(("character", "most"), [("x", MAX_PLAYERS), (WORST, 170), ("\x01", 341)])
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
        left = await system.call("DELETE", "/session/player/leave", data=sent)
        assert left.status == status
        assert len(left.body) <= MAX_ANSWER


@pytest.mark.parametrize(("size", "is_cut"), [(LOG_BYTES, False), (3 * 2**20, True)])
async def test_a_report_with_a_long_log_is_a_mebibyte_at_most(
    system: System, size: int, is_cut: bool
) -> None:
    assert (await system.start(id="m")).status == 201
    system.agent.logs = [b"x", b"\x01" * (size - 1)]
    assert (await system.call("DELETE", "/session/m")).status == 204
    report = await system.call("GET", "/session/m/report")
    assert len(report.body) <= MAX_ANSWER
    assert len(report.json["log"]) == LOG_BYTES
    assert report.json["log"].endswith("\x01")
    assert report.json["logTruncated"] is is_cut


async def test_a_long_list_of_applications_is_sent_in_portions(system: System) -> None:
    await system.rows(
        "WITH RECURSIVE n(n) AS (VALUES (100) UNION ALL SELECT n + 1 FROM n WHERE n < 300)"
        " INSERT INTO application(account, name, registry, repository, tag_keep, network_mode,"
        " node_pool, regions, limits, reservation, ports, created_ms)"
        " SELECT account, 'game' || n, registry, repository, tag_keep, network_mode,"
        " node_pool, ?, limits, reservation, ports, created_ms FROM application, n",
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
