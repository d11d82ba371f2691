"""Agents as operators remove them: what keeps one, and what follows."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.errors import AgentUnavailableError
from controlplane.storage.tables.hosts.fleet import remove_agent
from controlplane.storage.tables.sessions.sessions import begin_attempt, reserve
from tests.controlplane.operated_agents import LOST, Operated
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.system import PATIENCE, assert_error, eventually
from tests.support.controlplane.transactions import Go, blocked, intercept
from tests.support.hold import Hold
from tiltyard.runtime.clock import to_ms

pytestmark = pytest.mark.system(kind=Operated, agents=2)


def tasks_about(agent: FakeAgent) -> list[str]:
    names = (task.get_name() for task in asyncio.all_tasks())
    return [name for name in names if name.split()[-1] == agent.name]


async def test_a_removed_agent_is_neither_used_nor_watched(system: Operated) -> None:
    image = await system.make_application()
    gone = await system.undeclare()
    await eventually(lambda: system.has(gone.name, image))
    system.prefer(gone)
    gone.change_host()
    assert tasks_about(gone)
    assert (await system.agents_by_name())["a1"]["declared"] is False
    assert (await system.ask("DELETE", "/a1")).status == 204
    assert set(await system.agents_by_name()) == {"a0"}
    assert_error(await system.ask("GET", "/a1"), 404)
    assert_error(await system.ask("DELETE", "/a1"), 404)
    await eventually(lambda: not tasks_about(gone))
    assert (await system.call("GET", "/readyz")).status == 200
    for _ in range(4):
        assert (await system.start()).status == 201
    assert not gone.started
    await system.enable("v2")
    assert len(gone.pulled) == 1
    regions = await system.read("/operator/region")
    assert {row["name"]: row["agents"] for row in regions["regions"]}["local"] == 1
    assert await system.events("agent.removed", "actor, object") == [(system.operator_id, "a1")]
    await system.restart()
    assert set(await system.agents_by_name()) == {"a0"}


async def test_an_agent_declared_again_is_back_and_cannot_be_removed(system: Operated) -> None:
    await system.make_application()
    gone = await system.undeclare()
    assert (await system.ask("DELETE", "/a1")).status == 204
    system.agents.append(gone)
    await system.restart()
    await system.reaches("a1", "ready")
    await system.agent.stop()
    await system.restart()
    await system.reaches("a1", "ready")
    assert (await system.start()).status == 201
    assert gone.started
    assert_error(await system.ask("DELETE", "/a1"), 409, details="settings file")
    assert set(await system.agents_by_name()) == {"a0", "a1"}


async def test_agent_with_a_live_session_stays_and_ended_ones_are_listed(system: Operated) -> None:
    gone = await system.undeclare_the_only_one_in_use()
    assert (await system.start(id="s")).status == 201
    assert_error(await system.ask("DELETE", "/a1"), 409, details="live sessions: 1")
    assert "a1" in await system.agents_by_name()
    assert tasks_about(gone)
    assert (await system.call("DELETE", "/session/s")).status == 204
    assert (await system.ask("DELETE", "/a1")).status == 204
    for _ in range(2):
        assert await system.status_of("s") == "exited"
        listed = (await system.read("/session?all=1"))["sessions"]
        assert [session["id"] for session in listed] == ["s"]
        assert_error(await system.call("GET", "/logs?id=s"), 404)
        assert_error(await system.call("GET", "/artifacts?session=s&path=/x"), 404)
        assert_error(await system.call("DELETE", "/session/s"), 409)
        assert (await system.start(id="s")).status == 409
        await system.restart()


async def test_an_agent_stays_until_it_has_answered_the_stop_of_an_unknown_start(
    system: Operated,
) -> None:
    gone = await system.undeclare_the_only_one_in_use()
    await system.rows("INSERT INTO stop_order VALUES ('stopped', 'a1', 'unanswered', 0, 1)")
    stop = gone.before_stop = Hold()
    gone.before_start = refusing("ENGINE_TIMEOUT")
    assert_error(await system.start(), 420)
    await asyncio.wait_for(stop.reached.wait(), PATIENCE)
    owed = "stops that its host has not confirmed: 1"
    assert_error(await system.ask("DELETE", "/a1"), 409, details=owed)
    stop.set()
    await system.until_answered("DELETE", "/operator/agent/a1", 204)
    assert set(gone.stopped) == {gone.started[0].internal_id}


async def test_a_start_that_chose_a_removed_agent_takes_another(
    system: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The agent goes between the choice of the host and the attempt's commit."""
    await system.make_application()
    gone = await system.undeclare()
    await system.fills(gone)
    tries: list[Go] = []

    async def begin(go: Go) -> Any:
        tries.append(go)
        if len(tries) == 1:
            assert (await system.ask("DELETE", "/a1")).status == 204
        return await go()

    for transaction in (reserve, begin_attempt):
        intercept(monkeypatch, transaction, begin)
    (await system.start(id="s")).expect(201)
    assert len(tries) == 2
    assert await system.events("session.starting", "object") == [("s",)]
    assert await system.rows("SELECT agent FROM session") == [("a0",)]
    assert not await system.rows("SELECT 1 FROM stop_order")
    assert not gone.started


async def test_a_late_report_of_a_removed_agent_creates_no_session(system: Operated) -> None:
    await system.make_application()
    assert (await system.start(id="s")).status == 201
    owner = next(agent for agent in system.agents if agent.live)
    await system.control_plane.fleet.caught_up()
    await system.unnoticed("UPDATE agent SET removed_ms=1 WHERE name=?", owner.name)
    await system.unnoticed("DELETE FROM session")
    internal_id = owner.live[0].internal_id
    owner.change(internal_id, detail="still here")
    state = system.link(owner.name).state

    def has_reported() -> bool:
        session = state.session(internal_id)
        return session is not None and session.detail == "still here"

    await eventually(has_reported)
    assert not await system.rows("SELECT 1 FROM session")


async def test_reads_and_pulls_of_a_removed_agent_end(system: Operated) -> None:
    gone = await system.undeclare()
    system.agents[0].before_pull = gone.before_pull = gone.hang
    await system.make_application(tag=None)
    await system.enable("v1", pulled_by=())
    await eventually(lambda: any(name.startswith("image") for name in tasks_about(gone)))
    link = system.link(gone.name)
    chunks = link.state.client.stream_logs("any", follow=True)
    assert await anext(chunks)
    assert await anext(chunks)
    waiting = asyncio.ensure_future(anext(link.state.client.pull_image("i")))
    reading = asyncio.ensure_future(anext(chunks))
    await asyncio.sleep(0)
    assert (await system.ask("DELETE", "/a1")).status == 204
    for broken in (reading, waiting):
        with pytest.raises(AgentUnavailableError, match="disconnected"):
            await broken
    with pytest.raises(AgentUnavailableError, match="disconnected"):
        await anext(link.state.client.pull_image("i"))
    await eventually(lambda: not tasks_about(gone))
    assert any(name.startswith("image") for name in tasks_about(system.agent))


async def test_a_disconnect_leaves_no_removal_half_done(
    system: Operated, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = await system.undeclare()
    store = system.control_plane.store
    sent = asyncio.Event()

    async def note(go: Go) -> Any:
        sent.set()
        return await go()

    intercept(monkeypatch, remove_agent, note)
    async with blocked(store.run):
        removal = asyncio.create_task(system.ask("DELETE", "/a1"), name="removal")
        await sent.wait()
        removal.cancel()
        await asyncio.wait({removal})
    await eventually(lambda: not tasks_about(gone))
    assert set(await system.agents_by_name()) == {"a0"}


@pytest.mark.system(kind=Operated, agents=1, regions=("local", "elsewhere"), application={})
async def test_the_region_of_a_removed_agent_is_free(system: Operated) -> None:
    assert (await system.start(id="s")).status == 201
    assert (await system.call("DELETE", "/session/s")).status == 204
    await system.edit(regions=["elsewhere"])
    system.agents.pop()
    system.settings["regions"] = ("elsewhere",)
    await system.restart()
    assert_error(await system.call("DELETE", "/operator/region/local"), 409, details="agents: 1")
    assert (await system.ask("DELETE", "/a0")).status == 204
    (await system.call("DELETE", "/operator/region/local")).expect(204)
    assert await system.status_of("s") == "exited"


async def test_an_agent_that_is_lost_can_be_removed(tmp_path: Path) -> None:
    system = Operated(tmp_path, agents=2, **LOST)
    for agent in system.agents:
        agent.beat = 0.05
    async with system:
        await system.make_application()
        gone = await system.undeclare()
        await system.fills(gone)
        assert (await system.start(id="x")).status == 201
        assert gone.live
        assert_error(await system.ask("DELETE", f"/{gone.name}"), 409)
        await gone.stop()
        await system.reaches(gone.name, "lost")
        shown = (await system.ask("GET", f"/{gone.name}")).json
        assert shown["lastReport"] < shown["lost"] <= to_ms(system.clock.time())
        assert shown["sessions"] == 0
        assert_error(await system.call("DELETE", "/session/x"), 409)
        assert (await system.ask("DELETE", f"/{gone.name}")).status == 204
        assert await system.status_of("x") == "dead"
        assert await system.rows("SELECT 1 FROM stop_order WHERE confirmed_ms IS NULL") == []
