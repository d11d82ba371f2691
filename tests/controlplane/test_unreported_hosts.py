"""Calls while hosts have not reported since the control plane started."""

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tests.support.controlplane.waits import until_called_off, until_held_up

TAG = "/tag/local/game/v1"
LOCATIONS = "/available-location/game"
QUICK = 2.0  # The start_timeout of tests that wait for its end; half of it is for the last call

pytestmark = pytest.mark.system(agents=2, application={})


async def restart_without(system: System, *agents: FakeAgent) -> None:
    """Restart the control plane while hosts are away."""
    for agent in agents:
        await agent.stop()
    await system.restart()


def calls(system: System) -> tuple[Coroutine[Any, Any, Answer], ...]:
    """Two starts and two reads, whose answers may depend on hosts that have not reported."""
    starts = system.start(id="named", version="v1"), system.start(id="any")
    return *starts, system.call("GET", TAG), system.call("GET", LOCATIONS)


async def after_return(
    system: System, agent: FakeAgent, *calls: Coroutine[Any, Any, Answer]
) -> list[Answer]:
    """Restart a host once all of these calls wait, and return their answers."""
    waiting = [asyncio.create_task(call) for call in calls]
    await until_held_up(system, waiting)
    await agent.start()
    return await asyncio.gather(*waiting)


async def add_newer_tag(system: System, *agents: FakeAgent) -> str:
    """Enable v2, which only these hosts pull; return its image."""
    for agent in system.agents:
        if agent not in agents:
            agent.before_pull = agent.hang
    return await system.enable("v2", pulled_by=agents)


@pytest.mark.system(application={})
async def test_calls_wait_for_hosts_that_have_not_reported(system: System) -> None:
    await restart_without(system, system.agent)
    named, any_tag, tag, locations = await after_return(system, system.agent, *calls(system))
    assert named.status == 201
    assert any_tag.status == 201
    assert tag.json == {"exists": True}
    assert [place["id"] for place in locations.json["locations"]] == ["local"]


@pytest.mark.system(start_timeout=QUICK, application={})
async def test_calls_are_503_while_an_unreported_host_could_change_the_answer(
    system: System,
) -> None:
    await restart_without(system, system.agent)
    for answer in await asyncio.gather(*calls(system)):
        assert_error(answer, 503)
        assert 1 <= int(answer.headers["Retry-After"]) <= 5
        assert "have not reported" in answer.json["details"]
    assert await system.rows("SELECT 1 FROM session") == []


@pytest.mark.system(application={})
async def test_a_host_that_stays_unresponsive_is_not_waited_for(system: System) -> None:
    system.settings["unreachable_after"] = 0.5
    await restart_without(system, system.agent)
    *starts, tag, locations = await asyncio.gather(*calls(system))
    for start in starts:
        assert_error(start, 420, details="the hosts that may have the tag do not answer")
        assert start.json["code"] == "HOSTS_UNRESPONSIVE"
    assert tag.json == {"exists": False}
    assert locations.json == {"locations": []}


async def test_answers_unaffected_by_unreported_hosts_are_immediate(system: System) -> None:
    await system.make_application(
        name="far", repository="studio/far", regions=["elsewhere"], tag=None
    )
    await restart_without(system, system.agents[1])
    assert_error(await system.start(version="v0"), 404)
    assert_error(await system.start(image="far", location="elsewhere"), 404)
    assert await system.read("/tag/local/game/v0") == {"exists": False}
    assert (await system.start()).status == 201
    assert await system.read(TAG) == {"exists": True}
    assert await system.locations() == ["local"]


async def test_a_start_without_version_does_not_run_an_older_tag(system: System) -> None:
    older, newer = system.agents
    image = await add_newer_tag(system, newer)
    await restart_without(system, newer)
    assert (await system.start(id="named", version="v1")).status == 201
    (answer,) = await after_return(system, newer, system.start(id="newest"))
    assert answer.status == 201
    assert [session.image for session in newer.live] == [image]
    assert len(older.live) == 1


async def test_a_drained_host_that_has_not_reported_does_not_hold_up_starts(
    system: System,
) -> None:
    _, newer = system.agents
    await add_newer_tag(system, newer)
    drained = await system.call("POST", f"/operator/agent/{newer.name}/drain", json={})
    assert drained.status == 200, drained.text
    await restart_without(system, newer)
    assert (await system.start()).status == 201


async def restart_without_room(system: System, *, room: int) -> FakeAgent:
    """Restart while a host with room for more sessions is away, and the other one is full."""
    full, away = system.agents
    full.host.free_sessions = 0
    away.host.free_sessions = room
    await restart_without(system, away)
    return away


async def test_a_start_waits_where_only_an_unreported_host_may_have_room(system: System) -> None:
    away = await restart_without_room(system, room=1000)
    (answer,) = await after_return(system, away, system.start(id="s"))
    assert answer.status == 201
    assert len(away.live) == 1


async def test_a_start_fails_once_the_unreported_host_has_come_back_full(system: System) -> None:
    away = await restart_without_room(system, room=0)
    (answer,) = await after_return(system, away, system.start(id="s"))
    assert_error(answer, 420, details="no host has capacity")
    assert away.live == []
    await system.becomes("s", "")


@pytest.mark.system(agents=2, application={}, start_timeout=QUICK)
async def test_a_start_is_503_if_the_host_that_may_have_room_stays_away(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.sessions.start.RESERVE", 0.0)
    await restart_without_room(system, room=1000)
    answer = await system.start(id="s")
    assert_error(answer, 503, details="have not reported")
    await system.becomes("s", "")


@pytest.mark.system(application={})
async def test_a_start_that_waits_for_a_host_to_report_can_be_stopped(system: System) -> None:
    await restart_without(system, system.agent)
    under_way = system.control_plane.starts.under_way
    post = asyncio.create_task(system.start(id="s"))
    await eventually(lambda: under_way.get("alice", "s") is not None)
    stop = asyncio.create_task(system.call("DELETE", "/session/s"))
    await until_called_off(system, "s")
    await system.agent.start()
    assert (await stop).status == 204
    assert_error(await post, 409)
    assert system.agent.started == []


@pytest.mark.system(application={})
async def test_a_host_that_is_removed_is_not_waited_for(system: System) -> None:
    await restart_without(system, system.agent)
    waiting = asyncio.create_task(system.start())
    await until_held_up(system, [waiting])
    system.control_plane.fleet.remove(system.agent.name)
    assert_error(await waiting, 404)


async def test_ready_standby_serves_while_the_tag_is_on_an_unreported_host(system: System) -> None:
    (await system.call("PUT", "/warm-pool/game/local", json={"size": 1})).expect(204)
    await eventually(lambda: any(agent.standbys for agent in system.agents))
    first, newer = sorted(system.agents, key=lambda agent: not agent.standbys)
    newest = await add_newer_tag(system, newer)
    await restart_without(system, newer)
    (standby,) = first.standbys
    assert standby.image != newest
    assert (await system.start()).status == 201
    assert [claim.internal_id for claim in first.claimed] == [standby.internal_id]
