"""Responses and leftovers while agents, callers and the control plane fail."""

import asyncio

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually
from tests.support.controlplane.transactions import opened

PINS = [{"container": 7777, "host": 20500}]

pytestmark = pytest.mark.system(application={})


async def can_start(system: System, name: str) -> bool:
    return (await system.start(id=name, ports=PINS)).status == 201


@pytest.mark.system(start_timeout=10.0, application={})
async def test_a_start_whose_answer_is_lost_is_stopped_and_leaves_nothing(system: System) -> None:
    system.agent.after_start = system.agent.hang
    assert "Retry-After" in assert_error(await system.start(id="lost", ports=PINS), 420).headers
    await system.nothing_is_left()
    assert set(system.agent.stopped) == {system.agent.started[0].internal_id}
    assert system.agent.sessions == {}
    assert_error(await system.call("GET", "/session/lost"), 404)
    system.agent.after_start = None
    await eventually(lambda: can_start(system, "lost"))


@pytest.mark.system(agents=5, start_timeout=30.0, application={})
@pytest.mark.parametrize("hangs", [True, False])
async def test_at_most_three_hosts_that_do_not_answer_are_tried(
    system: System, monkeypatch: pytest.MonkeyPatch, hangs: bool
) -> None:
    if hangs:  # then briefly, so that the start does not time out first
        monkeypatch.setattr("controlplane.sessions.start.CALL_SHARE", 0.2 / 30)
    for agent in system.agents:
        agent.before_start = agent.hang if hangs else refusing("ENGINE_TIMEOUT")
    why = "the hosts do not answer" if hangs else "engine_timeout: as scripted"
    assert_error(await system.start(), 420, details=why)
    assert len(await system.rows("SELECT 1 FROM stop_order")) == 3
    # A call may end before its host has read it.
    assert sum(len(agent.started) for agent in system.agents) <= 3
    await system.nothing_is_left()


async def test_reports_do_not_change_a_start_in_progress(system: System) -> None:
    start, gate = await system.held_start("after_start", id="s")
    system.agent.send_snapshot()
    system.agent.change_host(free_sessions=7)
    # Messages are processed in order: the session's was processed before.
    await system.has_reported("a0", free_sessions=6)
    assert await system.rows("SELECT state, confirmed FROM session") == [("created", 0)]
    gate.set()
    assert (await start).status == 201
    assert await system.rows("SELECT state, confirmed FROM session") == [("running", 1)]


async def test_a_restart_of_its_agent_ends_no_session(system: System) -> None:
    await system.start(id="s")
    await system.agent.restart()
    link = system.link()
    await eventually(lambda: link.state.incarnation == system.agent.incarnation)
    assert await system.status_of("s") == "running"
    assert link.state.in_flight == 0
    assert (await system.start()).status == 201


async def test_a_snapshot_that_is_not_reconciled_ends_no_session(system: System) -> None:
    await system.start(id="s")
    (internal_id,) = system.agent.sessions
    session = system.agent.sessions.pop(internal_id)
    system.agent.reconciled = False
    system.agent.send_snapshot()
    system.agent.change_host(free_sessions=7)
    await system.has_reported("a0", free_sessions=7)
    assert await system.status_of("s") == "running"
    system.agent.sessions[internal_id] = session


async def start_and_lose(system: System) -> None:
    """Start a session `s` with a pinned port, and let it vanish from its host."""
    assert await can_start(system, "s")
    assert_error(await system.start(ports=PINS), 420)
    await system.catches_up()
    system.agent.lose(next(iter(system.agent.sessions)))


async def test_a_session_that_vanished_is_dead_and_returns_its_ports(system: System) -> None:
    await start_and_lose(system)
    system.agent.send_snapshot()
    await system.becomes("s", "dead")
    assert await system.rows("SELECT end_reason FROM session") == [("engine_error",)]
    await system.nothing_is_left()
    await eventually(lambda: can_start(system, "next"))


async def test_a_session_that_a_stop_does_not_find_returns_its_ports(system: System) -> None:
    await start_and_lose(system)
    assert (await system.call("DELETE", "/session/s")).status == 204
    assert await can_start(system, "next")


async def test_a_vanished_session_that_is_stored_as_ended_returns_its_ports(
    system: System,
) -> None:
    await start_and_lose(system)
    await system.rows("UPDATE session SET state='exited', ended_ms=1")
    system.agent.send_snapshot()
    await eventually(lambda: can_start(system, "next"))


async def test_an_unresponsive_host_is_unreachable_and_its_stop_remembered(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    await system.agent.stop()
    fleet = system.control_plane.fleet
    fleet.unresponsive_after = fleet.unreachable_after = 0.1
    await system.becomes("s", "server_unreachable")
    assert_error(await system.start(), 420, details="do not answer")
    assert_error(await system.call("DELETE", "/session/s"), 503)
    assert_error(await system.call("GET", "/logs?id=s"), 503)
    await system.agent.restart()
    await system.becomes("s", "exited")
    assert len(set(system.agent.stopped)) == 1  # A stop is repeated until it is answered


async def test_a_drained_host_is_lack_of_capacity_and_not_of_the_tag(system: System) -> None:
    system.agent.change_host(draining=True)
    await eventually(lambda: system.control_plane.fleet.is_draining("a0"))
    answer = assert_error(await system.start(), 420)
    assert "Retry-After" in answer.headers
    await system.nothing_is_left()


async def test_an_id_without_an_attempt_is_freed_by_a_restart(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    (internal_id,) = system.agent.sessions
    await system.stop_serving()
    # As if the process had died after it reserved the id, and before it chose a host.
    unattempted = "UPDATE session SET state='created', confirmed=0, agent=NULL, internal_id=NULL"
    async with opened(system.config.database) as store:
        await store.run(lambda db: db.execute(unattempted))
    system.agent.lose(internal_id)
    await system.serve()
    assert await system.rows("SELECT 1 FROM session") == []
    assert (await system.start(id="s")).status == 201


async def test_a_caller_that_disconnects_does_not_cancel_its_start(system: System) -> None:
    start, gate = await system.held_start(id="s")
    start.cancel()
    await asyncio.wait({start})
    gate.set()
    await system.becomes("s", "running")
