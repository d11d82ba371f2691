"""What hosts report, and what the control plane knows of them in memory, becomes events."""

import asyncio
import json
from typing import Any

import pytest

from controlplane.storage.engine import follower
from controlplane.storage.tables.hosts.conditions import note_conditions, write_reported
from tests.controlplane.test_start_failures import BROKEN
from tests.controlplane.warm_pools import keep
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, eventually_equals
from tests.support.controlplane.transactions import Go, fail_once, intercept
from tests.support.hold import Hold

AGENT_EVENTS = "agent.%"


async def kinds(system: System, pattern: str) -> list[str]:
    return [kind for (kind,) in await system.events(pattern, "kind")]


async def test_full_disk_is_an_event_once_also_over_a_restart(system: System) -> None:
    system.agent.change_host(disk_full=True)
    await eventually_equals(lambda: kinds(system, AGENT_EVENTS), ["agent.disk_full"])
    system.agent.change_host(free_sessions=5)
    await system.restart()
    await system.catches_up()
    system.agent.change_host(disk_full=False)
    expected = ["agent.disk_full", "agent.disk_free"]
    await eventually_equals(lambda: kinds(system, "agent.disk%"), expected)


async def test_reports_that_change_no_condition_are_not_written(system: System) -> None:
    before = await system.rows("SELECT number FROM event_counter")
    for free in range(5):
        system.agent.change_host(free_sessions=free)
    await system.catches_up()
    assert await system.rows("SELECT number FROM event_counter") == before


async def test_unexpected_error_is_logged_and_its_events_are_written_later(
    system: System, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(follower, "FAULT_PAUSE", 0.05)
    intercept(monkeypatch, note_conditions, fail_once(RuntimeError("scripted")))
    system.agent.change_host(disk_full=True)
    await eventually_equals(lambda: kinds(system, AGENT_EVENTS), ["agent.disk_full"])
    expected = "cannot apply what has changed: internal error part=events of hosts"
    assert expected in caplog.text


async def drain(system: System) -> None:
    """Drain the host, and wait until its sessions know."""
    (await system.call("POST", "/operator/agent/a0/drain", json={})).expect(200)
    sql = "SELECT sessions_draining > 0 FROM agent"
    await eventually_equals(lambda: system.rows(sql), [(1,)])


async def disk_is_full(system: System, *, full: bool = True) -> None:
    """Report a full disk, or space, and wait until that is written."""
    kind = "agent.disk_full" if full else "agent.disk_free"
    system.agent.change_host(disk_full=full)
    await eventually_equals(lambda: system.events(kind, "object"), [("a0",)])


@pytest.mark.system(application={})
async def test_sessions_learn_of_a_drain_and_its_host_that_it_is_empty(system: System) -> None:
    (await system.start(id="x")).expect(201)
    path = "/operator/agent/a0/drain"
    (await system.call("POST", path, json={"deadline": "2h"})).expect(200)
    await eventually_equals(lambda: system.events("session.draining", "object"), [("x",)])
    (session,) = system.agent.live
    [(text,)] = await system.events("session.draining", "data")
    [(order,)] = await system.events("agent.draining", "data")
    assert json.loads(text)["deadline"] == json.loads(order)["deadline"]
    assert await system.events("agent.empty", "object") == []
    system.agent.end(session.internal_id)
    await eventually_equals(lambda: system.events("agent.empty", "object"), [("a0",)])


@pytest.mark.system(start_timeout=600.0, application={})
async def test_host_is_not_empty_while_a_claim_is_under_way(system: System) -> None:
    """The claim began before the drain, which its host accepts first."""
    await keep(system, size=1)
    system.agent.before_order = ending_standbys = Hold()
    start, claiming = await system.held_start("before_claim", id="x")
    await drain(system)
    await system.has_reported("a0", draining=True)
    await disk_is_full(system)
    assert await system.events("agent.empty", "object") == []
    claiming.set()
    (await start).expect(201)
    ending_standbys.set()
    await disk_is_full(system, full=False)
    assert await system.events("agent.empty", "object") == []
    (session,) = system.agent.live
    system.agent.end(session.internal_id)
    await eventually_equals(lambda: system.events("agent.empty", "object"), [("a0",)])


@pytest.mark.system(start_timeout=600.0, application={})
async def test_host_is_empty_once_it_has_refused_the_last_claim(system: System) -> None:
    await keep(system, size=1)
    refusing_claim = Hold()

    async def refuse(request: Any, context: Any) -> None:
        await refusing_claim()
        await refusing("DRAINING")(request, context)

    system.agent.before_claim = refuse
    start = asyncio.create_task(system.start(id="x"))
    await refusing_claim.reached.wait()
    await drain(system)
    await system.has_reported("a0", draining=True)
    await disk_is_full(system)
    assert await system.events("agent.empty", "object") == []
    refusing_claim.set()
    (await start).expect(420)
    await eventually_equals(lambda: system.events("agent.empty", "object"), [("a0",)])


@pytest.mark.system(application={})
async def test_session_learns_of_the_end_of_a_drain_after_a_restart(system: System) -> None:
    (await system.start(id="x")).expect(201)
    (await system.call("POST", "/operator/agent/a0/drain", json={})).expect(200)
    await eventually_equals(lambda: system.events("session.draining", "object"), [("x",)])
    await system.restart()
    (await system.call("DELETE", "/operator/agent/a0/drain")).expect(200)
    await eventually_equals(lambda: system.events("session.undrained", "object"), [("x",)])
    assert await system.events("session.draining", "object") == [("x",)]


@pytest.mark.system(application={})
async def test_session_learns_of_a_drain_that_was_ordered_on_its_host(system: System) -> None:
    (await system.start(id="x")).expect(201)
    system.agent.change_host(draining=True)
    await eventually_equals(lambda: system.events("session.draining", "object"), [("x",)])


@pytest.mark.system(application={})
async def test_session_that_is_written_during_a_drain_learns_of_it(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A claim is written a moment after its answer."""
    await keep(system, size=1)
    writing = Hold()

    async def held(go: Go) -> Any:
        await writing()
        return await go()

    intercept(monkeypatch, write_reported, held)
    (await system.start(id="x")).expect(201)
    await writing.reached.wait()
    await drain(system)
    assert await system.events("session.draining", "object") == []
    writing.set()
    await eventually_equals(lambda: system.events("session.draining", "object"), [("x",)])


@pytest.mark.system(application={})
async def test_session_whose_start_ends_during_a_drain_learns_of_it(system: System) -> None:
    """It takes the place of one that has learnt of the drain."""
    (await system.start(id="first")).expect(201)
    (first,) = system.agent.live
    second, starting = await system.held_start(id="second")
    await drain(system)
    await eventually_equals(lambda: system.events("session.draining", "object"), [("first",)])
    system.agent.end(first.internal_id)
    await system.becomes("first", "exited")
    starting.set()
    (await second).expect(201)
    expected = [("first",), ("second",)]
    await eventually_equals(lambda: system.events("session.draining", "object"), expected)


@pytest.mark.system(agents=1, application={})
async def test_host_on_which_starts_of_several_accounts_fail_is_avoided(system: System) -> None:
    await system.make_application(account="bob")
    system.agent.before_start = BROKEN
    (await system.start()).expect(420)
    assert await system.events("agent.avoided", "object") == []
    (await system.start(account="bob")).expect(420)
    await eventually_equals(lambda: system.events("agent.avoided", "object"), [("a0",)])
    [(text,)] = await system.events("agent.avoided", "data")
    assert json.loads(text)["reason"] == "engine_error"
