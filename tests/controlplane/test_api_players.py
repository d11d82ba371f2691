"""PUT /session/player/join and DELETE /session/player/leave."""

import asyncio
import io
from typing import Any

import pytest

from controlplane.storage.tables.sessions.session_rows import remove_ended
from tests.support.controlplane.system import System, assert_error

JOIN = ("PUT", "/session/player/join")
LEAVE = ("DELETE", "/session/player/leave")

pytestmark = pytest.mark.system(application={}, session="m")


async def _players(system: System, session: str = "m") -> Any:
    return (await system.read(f"/session/{session}"))["players"]


async def test_players_join_in_order_and_once_until_they_leave(system: System) -> None:
    joined = await system.join("b", "a", "b")
    assert joined.status == 200
    assert joined.json == {"count": 2, "players": ["b", "a"]}
    assert (await system.join("c", "a")).json == {"count": 3, "players": ["b", "a", "c"]}
    assert await _players(system) == {"joined": ["b", "a", "c"], "joinedCount": 3}
    listed = (await system.read("/session?playerCount[gt]=2"))["sessions"]
    assert [entry["playerCount"] for entry in listed] == [3]
    assert await system.read("/session?playerCount[lt]=3") == {"sessions": []}
    left = await system.leave("b", "never", "b", session="m")
    assert left.status == 200
    assert left.json == {"count": 2, "players": ["b", "never", "b"]}
    assert (await system.leave("b", session="m")).json == {"count": 2, "players": ["b"]}
    assert (await system.join("b")).json["players"] == ["a", "c", "b"]
    assert (await system.leave("a", "b", "c", session="m")).json["count"] == 0
    assert await _players(system) == {"joined": [], "joinedCount": 0}


async def test_players_leave_all_their_sessions(system: System) -> None:
    for session in ("n", "over", "other"):
        await system.start(id=session)
    for session in ("m", "n", "over"):
        await system.join("p", f"only in {session}", session=session)
    await system.join("x", "y", session="other")
    assert (await system.call("DELETE", "/session/over")).status == 204
    left = await system.leave("p", "unknown", session=None)
    assert left.status == 200
    assert left.json == {"count": 2, "players": ["p", "unknown"]}
    assert (await _players(system))["joined"] == ["only in m"]
    assert (await _players(system, "n"))["joined"] == ["only in n"]
    assert (await _players(system, "over"))["joined"] == []
    assert (await _players(system, "other"))["joined"] == ["x", "y"]
    assert_error(await system.leave("p"), 404)
    assert_error(await system.call(*LEAVE, json={"players": ["x"]}, account="bob"), 404)


async def test_sessions_of_one_id_in_two_accounts_do_not_mix(system: System) -> None:
    await system.make_application(account="bob")
    assert (await system.start(account="bob", id="m")).status == 201
    assert (await system.join("p", "a")).json["players"] == ["p", "a"]
    assert (await system.join("b", "p", account="bob")).json["players"] == ["b", "p"]
    assert (await system.leave("p")).json["count"] == 1
    assert (await system.leave("b", session="m")).json["count"] == 1
    assert (await system.read("/session/m", account="bob"))["players"]["joined"] == ["b", "p"]


async def test_an_ended_session_can_be_left_and_not_joined(system: System) -> None:
    await system.join("a", "b")
    assert (await system.call("DELETE", "/session/m")).status == 204
    assert_error(await system.join("c"), 404)
    assert_error(await system.join("a"), 404)
    assert (await system.leave("a", session="m")).json == {"count": 0, "players": ["a"]}
    await system.control_plane.store.run_in_portions(remove_ended, 2.0**40)
    assert_error(await system.leave("b", session="m"), 404)
    assert await system.rows("SELECT * FROM player") == []


async def test_a_session_can_be_joined_while_it_starts(system: System) -> None:
    start, release = await system.held_start(id="soon")
    assert (await system.join("a", session="soon")).status == 200
    release.set()
    assert (await start).status == 201
    assert (await _players(system, "soon"))["joined"] == ["a"]


async def test_bounds_and_bodies(system: System) -> None:
    most = [f"{number:x<256}" for number in range(1000)]
    assert (await system.join(*most)).json == {"count": 1000, "players": most}
    assert (await system.leave(*most)).json == {"count": 0, "players": most}
    for method in (JOIN, LEAVE):
        assert_error(await system.call(*method), 422, "body")
        assert_error(await system.call(*method, data=io.BytesIO(b" " * (2**20 + 1))), 413)
    odd = ["🎮", "\x01", "'; --", '"', "\\", " ", "null", "1", "\ufeff", "a\u0301", "á"]
    assert (await system.join(*odd)).json == {"count": len(odd), "players": odd}
    assert (await system.leave(*odd)).json == {"count": 0, "players": odd}


async def test_concurrent_calls_add_up(system: System) -> None:
    names = [f"p{number}" for number in range(50)]
    both = await asyncio.gather(*(system.join(name, "all") for name in names * 2))
    assert {answer.status for answer in both} == {200}
    joined = (await _players(system))["joined"]
    assert sorted(joined) == sorted([*names, "all"])
    # Every answer is a consistent snapshot of the list.
    assert all(answer.json["players"] == joined[: answer.json["count"]] for answer in both)
    assert all(answer.json["count"] == len(answer.json["players"]) for answer in both)
    left = await asyncio.gather(*(system.leave(name, session="m") for name in names * 2))
    assert {answer.status for answer in left} == {200}
    assert await _players(system) == {"joined": ["all"], "joinedCount": 1}


async def test_paths_of_players_do_not_shadow_session_ids(system: System) -> None:
    for session in ("player/join", "player/leave", "player", "join"):
        assert (await system.start(id=session)).status == 201
    for path in ("player%2Fjoin", "player%2Fleave", "player", "join"):
        found = await system.call("GET", f"/session/{path}")
        assert found.status == 200
        assert found.json["id"] == path.replace("%2F", "/")
    for path, allowed in (("join", "PUT"), ("leave", "DELETE")):  # and by POST
        wrong = assert_error(await system.call("GET", f"/session/player/{path}"), 405)
        assert set(wrong.headers["Allow"].split(",")) == {"OPTIONS", "POST", allowed}
    wrong = assert_error(await system.call("PUT", "/session/player%2Fjoin", json={}), 405)
    assert set(wrong.headers["Allow"].split(",")) == {"GET", "HEAD", "OPTIONS", "DELETE"}
    assert_error(await system.call("DELETE", "/session/player/leave"), 422, "body")
    assert (await system.call("DELETE", "/session/player%2Fleave")).status == 204
    assert await system.status_of("player%2Fleave") == "exited"
