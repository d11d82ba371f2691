"""Responses and leftovers while agents, callers and the control plane fail."""

import pytest

from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually

PINS = [{"container": 7777, "host": 20500}]

pytestmark = pytest.mark.system(application={})


async def can_start(system: System, name: str) -> bool:
    return (await system.start(id=name, ports=PINS)).status == 201


@pytest.mark.system(start_timeout=4.0, application={})
async def test_a_start_whose_answer_is_lost_is_stopped_and_leaves_nothing(system: System) -> None:
    system.agent.after_start = system.agent.hang
    assert "Retry-After" in assert_error(await system.start(id="lost", ports=PINS), 420).headers
    await system.nothing_is_left()
    assert system.agent.stopped == [system.agent.started[0].internal_id]
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
    assert len(await system.rows("SELECT 1 FROM unanswered")) == 3
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


async def test_neither_restart_nor_unreconciled_snapshot_ends_a_session(system: System) -> None:
    await system.start(id="s")
    (internal_id,) = system.agent.sessions
    await system.agent.restart()
    link = system.link()
    await eventually(lambda: link.incarnation == system.agent.incarnation)
    assert await system.status_of("s") == "running"
    assert link.in_flight == 0
    assert (await system.start()).status == 201
    session = system.agent.sessions.pop(internal_id)
    system.agent.reconciled = False
    system.agent.send_snapshot()
    system.agent.change_host(free_sessions=7)
    await system.has_reported("a0", free_sessions=6)
    assert await system.status_of("s") == "running"
    system.agent.sessions[internal_id] = session


async def test_a_session_that_vanished_is_dead_and_returns_its_ports(system: System) -> None:
    """Also one that only a stop misses, and one that is stored as ended."""

    def vanish() -> None:
        system.agent.lose(next(iter(system.agent.sessions)))

    assert await can_start(system, "s")
    assert_error(await system.start(ports=PINS), 420)
    vanish()
    system.agent.send_snapshot()
    await system.becomes("s", "dead")
    assert await system.rows("SELECT end_reason FROM session") == [("engine_error",)]
    await system.nothing_is_left()
    await eventually(lambda: can_start(system, "next"))

    await eventually(lambda: system.link().sequence == system.agent.sequence)
    vanish()
    assert (await system.call("DELETE", "/session/next")).status == 204
    assert await can_start(system, "third")

    await system.rows("UPDATE session SET state='exited', ended_ms=1")
    vanish()
    system.agent.send_snapshot()
    await eventually(lambda: can_start(system, "last"))


async def test_an_unresponsive_host_is_unreachable_and_its_stop_remembered(system: System) -> None:
    assert (await system.start(id="s")).status == 201
    await system.agent.stop()
    fleet = system.control_plane.fleet
    fleet.unresponsive_after = fleet.unreachable_after = 0.1
    await system.becomes("s", "server_unreachable")
    assert_error(await system.start(), 404)
    assert_error(await system.call("DELETE", "/session/s"), 503)
    assert_error(await system.call("GET", "/logs?id=s"), 503)
    await system.agent.restart()
    await system.becomes("s", "exited")
    assert len(system.agent.stopped) == 1
