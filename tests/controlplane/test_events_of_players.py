"""Players who join and leave are events if the application asks, for readers who name them."""

import json
from typing import Any

import pytest

from controlplane.domain.events.players import MOST_IDS
from controlplane.storage.engine.event_log import position
from tests.support.controlplane.event_reader import NDJSON, SSE, opened
from tests.support.controlplane.system import System, assert_error, token_id
from tiltyard.agent.v1 import agent_pb2

DAY = 86_400.0

pytestmark = pytest.mark.system(application={"playerEvents": True}, session="m")


async def of_players(system: System, **more: Any) -> list[tuple[str, str, list[str]]]:
    """Read the type, session and players of all events of players."""
    found = await system.read("/event?kind=players.*&limit=1000", **more)
    return [
        (event["type"], event["object"], event["data"]["players"]) for event in found["events"]
    ]


async def test_those_that_really_joined_or_left_are_events(system: System) -> None:
    await system.join("b", "a", "b")
    await system.join("a", "b")
    await system.join("a", "c")
    await system.leave("never", session="m")
    await system.leave("c", "never", "a", "a", session="m")
    assert await of_players(system) == [
        ("players.joined", "m", ["b", "a"]),
        ("players.joined", "m", ["c"]),
        ("players.left", "m", ["c", "a"]),
    ]


async def test_event_has_the_data_of_its_session(system: System) -> None:
    await system.join("ann")
    [event] = (await system.read("/event?kind=players.joined"))["events"]
    [ready] = (await system.read("/event?kind=session.starting"))["events"]
    assert event["actor"] == token_id(system.tokens["alice"])
    assert event["data"] == ready["data"] | {"players": ["ann"]}
    for query in ("session=m", "image=game", "location=local"):
        found = await system.read(f"/event?kind=players.*&{query}")
        assert [each["id"] for each in found["events"]] == [event["id"]]
    other = await system.read("/event?kind=players.*&session=other")
    assert other["events"] == []


async def test_leaving_all_sessions_is_an_event_of_each(system: System) -> None:
    await system.start(id="n")
    for session in ("m", "n"):
        await system.join("p", "q", session=session)
    await system.leave("q", "p")
    left = [event for event in await of_players(system) if event[0] == "players.left"]
    assert sorted(left) == [
        ("players.left", "m", ["q", "p"]),
        ("players.left", "n", ["q", "p"]),
    ]


@pytest.mark.system(application={}, session="m")
async def test_no_player_is_an_event_unless_the_application_asks_now(system: System) -> None:
    [application] = (await system.read("/application"))["applications"]
    assert "playerEvents" not in application
    await system.join("a")
    await system.leave("a", session="m")
    await system.join("a")
    await system.leave("a")
    assert await of_players(system) == []
    (await system.edit(playerEvents=True)).expect(204)
    [application] = (await system.read("/application"))["applications"]
    assert application["playerEvents"] is True
    await system.join("b")
    assert await of_players(system) == [("players.joined", "m", ["b"])]
    (await system.edit(playerEvents=False)).expect(204)
    await system.leave("b", session="m")
    assert len(await of_players(system)) == 1


@pytest.mark.system(
    application={"playerEvents": True}, session="m", player_events_retention_days=0
)
async def test_operator_can_switch_events_of_players_off(system: System) -> None:
    await system.join("a")
    await system.leave("a", session="m")
    await system.join("a")
    await system.leave("a")
    assert await of_players(system) == []


async def test_refused_join_is_no_event(system: System) -> None:
    players = [f"p{number}" for number in range(1000)]
    await system.join(*players)
    await system.join(*(f"q{number}" for number in range(1000)))
    before = len(await of_players(system))
    assert_error(await system.join("a", "b"), 422, "players")
    assert_error(await system.join("a", session="none"), 404)
    assert_error(await system.leave("none"), 404)
    assert len(await of_players(system)) == before


async def test_many_players_are_several_events_in_order(system: System) -> None:
    players = [f"p{number}" for number in range(2 * MOST_IDS + 1)]
    await system.join(*players)
    joined = await of_players(system)
    assert [len(ids) for _, _, ids in joined] == [MOST_IDS, MOST_IDS, 1]
    assert [player for _, _, ids in joined for player in ids] == players


async def test_end_of_a_run_or_session_is_no_event_of_players(system: System) -> None:
    await system.join("a")
    [internal_id] = system.agent.sessions
    system.agent.sessions[internal_id].failure_time.GetCurrentTime()
    system.agent.change(internal_id, state=agent_pb2.STATE_RESTARTING)
    await system.becomes("m", "restarting")
    system.agent.change(internal_id, state=agent_pb2.STATE_RUNNING, restart_count=1)
    await system.becomes("m", "running")
    assert (await system.read("/session/m"))["players"]["joined"] == []
    await system.join("b")
    (await system.call("DELETE", "/session/m")).expect(204)
    await system.leave("b", session="m")
    assert await of_players(system) == [
        ("players.joined", "m", ["a"]),
        ("players.joined", "m", ["b"]),
    ]


# ---- readers of all kinds


@pytest.mark.parametrize("path", ["/event", "/operator/event"])
@pytest.mark.parametrize(
    ("query", "is_shown"),
    [
        ("", False),
        ("session=m", False),
        ("image=game", False),
        ("kind=session.*", False),
        ("kind=players.*", True),
        ("kind=players.joined", True),
        ("kind=session.*,players.joined&session=m", True),
        ("kind=players.left", False),
    ],
)
async def test_page_has_players_only_if_its_filter_names_them(
    system: System, path: str, query: str, is_shown: bool
) -> None:
    await system.join("ann")
    found = await system.read(f"{path}?limit=1000&{query}")
    kinds = {event["type"] for event in found["events"]}
    assert ("players.joined" in kinds) is is_shown
    assert ("ann" in json.dumps(found)) is is_shown


async def test_page_of_all_kinds_is_not_shorter_for_the_players_between(system: System) -> None:
    for number in range(5):
        await system.join(f"p{number}")
    start = (await system.read("/operator/event?kind=session.running"))["events"][0]["id"]
    await system.start(id="n")
    found = await system.read(f"/operator/event?after={start}&limit=2")
    assert len(found["events"]) == 2


@pytest.mark.parametrize("form", [SSE, NDJSON])
@pytest.mark.parametrize("path", ["/event", "/operator/event"])
async def test_stream_has_players_only_if_its_filter_names_them(
    system: System, form: str, path: str
) -> None:
    async with (
        opened(system, form=form, path=path) as everything,
        opened(system, "kind=players.*,session.*", form=form, path=path) as named,
    ):
        await system.join("ann", session="m")
        await system.start(id="n")
        assert await everything.objects(1) == ["n"]
        assert await named.objects(2) == ["m", "n"]


@pytest.mark.parametrize(
    ("query", "is_shown"),
    [
        ("", False),
        ("object=m", False),
        ("account=alice", False),
        ("account=alice&object=m", False),
        ("kind=session", False),
        ("kind=players", True),
        ("kind=players.joined", True),
    ],
)
async def test_audit_has_players_only_if_its_filter_names_them(
    system: System, query: str, is_shown: bool
) -> None:
    await system.join("ann")
    found = await system.read(f"/operator/audit?limit=1000&{query}")
    assert found["events"]
    assert ("ann" in json.dumps(found)) is is_shown


# ---- retention


async def age_players(system: System, days: float) -> None:
    """Set the time of the events of players back."""
    sql = "UPDATE event SET time_ms = time_ms - ? WHERE kind LIKE 'players.%'"
    await system.rows(sql, int(days * DAY * 1000))


async def test_events_of_players_are_removed_after_an_age_of_their_own(system: System) -> None:
    await system.join("old")
    await age_players(system, 7.1)
    await system.join("new")
    await system.control_plane.upkeep.forget()
    assert await of_players(system) == [("players.joined", "m", ["new"])]
    others = await system.read("/event?kind=session.starting&after=1-0")
    assert len(others["events"]) == 1


async def test_removal_of_players_is_a_gap_only_for_those_who_name_them(system: System) -> None:
    await system.join("old")
    removed = await system.control_plane.store.look(position)
    await age_players(system, 7.1)
    await system.control_plane.upkeep.forget()
    for path in ("/event", "/operator/event"):
        for query in ("", "kind=session.*", "session=m"):
            answer = await system.call("GET", f"{path}?after=1-0&{query}")
            assert answer.status == 200, answer.text
        gone = await system.call("GET", f"{path}?after=1-0&kind=players.*,session.*")
        assert assert_error(gone, 410).json["resume"] == str(removed)
    bob = await system.call("GET", "/event?after=1-0&kind=players.*", account="bob")
    assert bob.status == 200


@pytest.mark.system(application={"playerEvents": True}, session="m", max_audit_entries=20)
async def test_players_of_an_account_are_bounded_by_number(system: System) -> None:
    for number in range(25):
        await system.join(f"p{number}")
    await system.control_plane.surplus.remove_surplus(["alice"])
    kept = await of_players(system)
    assert [ids for _, _, ids in kept] == [[f"p{number}"] for number in range(5, 25)]
    assert (await system.call("GET", "/event?after=1-0&kind=session.*")).status == 200
