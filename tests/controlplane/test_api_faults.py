"""Responses and leftovers while agents, callers and the control plane fail."""

import asyncio
from pathlib import Path

import pytest

from controlplane.storage.engine.store import Store
from tests.support.controlplane.fake_agent import refusing
from tests.support.controlplane.system import System, assert_error, eventually
from tests.support.hold import Hold
from tiltyard.agent.v1 import agent_pb2


async def test_a_hanging_agent_is_420_in_time_and_its_late_session_is_stopped(
    tmp_path: Path,
) -> None:
    async with System(tmp_path, start_timeout=4.0) as system:
        await system.make_application()
        system.agent.before_start = system.agent.hang
        answer = await system.start(id="late")
        assert_error(answer, 420)
        assert "Retry-After" in answer.headers
        internal_id = system.agent.started[0].internal_id
        assert await system.rows("SELECT internal_id FROM unanswered") == [(internal_id,)]
        await eventually(lambda: internal_id in system.agent.stopped)
        await system.nothing_is_left()
        assert await system.rows("SELECT 1 FROM session") == []
        system.agent.before_start = None
        system.control_plane.starts.start_timeout = 8.0
        assert (await system.start(id="late")).status == 201


async def test_a_start_whose_answer_is_lost_is_stopped(tmp_path: Path) -> None:
    async with System(tmp_path, start_timeout=4.0) as system:
        await system.make_application()
        system.agent.after_start = system.agent.hang
        assert_error(await system.start(id="lost"), 420)
        await system.nothing_is_left()
        assert system.agent.stopped == [system.agent.started[0].internal_id]
        assert system.agent.sessions == {}
        assert_error(await system.call("GET", "/session/lost"), 404)


async def test_a_refused_start_goes_to_the_next_host(tmp_path: Path) -> None:
    system = System(tmp_path, agents=3)
    system.prefer(*system.agents)
    async with system:
        await system.make_application()
        for agent in system.agents[:2]:
            agent.before_start = refusing("NO_CAPACITY")
        assert (await system.start()).status == 201
        assert [len(agent.started) for agent in system.agents] == [1, 1, 1]
        assert [len(agent.live) for agent in system.agents] == [0, 0, 1]
        assert await system.rows("SELECT 1 FROM unanswered") == []


@pytest.mark.parametrize("silent", [True, False])
async def test_at_most_three_hosts_that_do_not_answer_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silent: bool
) -> None:
    # Short, so that the start does not time out first.
    monkeypatch.setattr("controlplane.sessions.start.CALL_SHARE", 0.2 / 30)
    async with System(tmp_path, agents=5, start_timeout=30.0) as system:
        await system.make_application()
        for agent in system.agents:
            agent.before_start = agent.hang if silent else refusing("ENGINE_TIMEOUT")
        answer = await system.start()
        assert_error(answer, 420)
        why = "the hosts do not answer" if silent else "engine_timeout: as scripted"
        assert why in answer.json["details"]
        assert len(await system.rows("SELECT 1 FROM unanswered")) == 3
        # A call may end before its host has read it.
        assert sum(len(agent.started) for agent in system.agents) <= 3
        await system.nothing_is_left()


async def test_an_unreachable_agent_is_passed_over(tmp_path: Path) -> None:
    system = System(tmp_path, agents=2)
    system.prefer(*system.agents)
    async with system:
        await system.make_application()
        await system.agents[0].stop()
        answers = [await system.start() for _ in range(4)]
        assert [answer.status for answer in answers] == [201] * 4
        assert len(system.agents[1].live) == 4
        tried = await system.rows("SELECT DISTINCT agent FROM unanswered")
        assert tried == [(system.agents[0].name,)]


async def test_delete_during_a_start_stops_its_session(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        gate = Hold()
        system.agent.before_start = gate
        start = asyncio.create_task(system.start(id="s"))
        await eventually(lambda: bool(system.agent.started))
        assert await system.status_of("s") == "created"
        assert (await system.call("GET", "/session")).json == {"sessions": []}
        assert_error(await system.start(id="s"), 409)
        stop = asyncio.create_task(system.call("DELETE", "/session/s"))
        starts = system.control_plane.starts
        await eventually(lambda: starts.under_way._starts["alice", "s"].stop_wanted)
        gate.set()
        assert (await stop).status == 204
        assert_error(await start, 409)
        await system.nothing_is_left()
        assert await system.status_of("s") == "exited"


async def test_a_disconnect_does_not_cancel_the_start(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        gate = asyncio.Event()

        async def wait(*_: object) -> None:
            await gate.wait()

        system.agent.before_start = wait
        start = asyncio.create_task(system.start(id="s"))
        await eventually(lambda: bool(system.agent.started))
        start.cancel()
        await asyncio.wait({start})
        gate.set()
        await system.becomes("s", "running")


async def test_a_restarted_control_plane_restores_its_state(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        for number in range(3):
            assert (await system.start(id=f"s{number}")).status == 201
        first, second, third = system.agent.sessions
        await system.stop_serving()
        system.agent.end(first)
        system.agent.lose(second)
        await system.serve()
        await system.becomes("s0", "exited")
        await system.becomes("s1", "dead")
        assert await system.status_of("s2") == "running"
        reasons = await system.rows("SELECT end_reason FROM session WHERE id='s1'")
        assert reasons == [("engine_error",)]
        assert (await system.start(id="s3")).status == 201
        assert third in system.agent.sessions


async def test_a_start_interrupted_by_a_crash_is_kept(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        await system.stop_serving()
        # As if the process had died between the host's answer and the commit.
        await _edit(system, "UPDATE session SET state='created', confirmed=0, ports='[]'")
        await system.serve()
        await system.becomes("s", "running")


async def test_a_failed_start_frees_its_id(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        (internal_id,) = system.agent.sessions
        await system.stop_serving()
        await _edit(system, "UPDATE session SET state='created', confirmed=0")
        system.agent.lose(internal_id)
        await system.serve()
        await system.nothing_is_left()
        assert internal_id in system.agent.tombstones
        assert (await system.start(id="s")).status == 201


async def test_a_restart_frees_the_id_of_a_start_without_an_attempt(
    tmp_path: Path,
) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        await system.stop_serving()
        # As if the process had died between taking the id and choosing a host.
        await _edit(
            system,
            "UPDATE session SET state='created', confirmed=0, agent=NULL, internal_id=NULL",
        )
        system.agent.lose(next(iter(system.agent.sessions)))
        await system.serve()
        assert await system.rows("SELECT 1 FROM session") == []
        assert (await system.start(id="s")).status == 201


async def test_reports_do_not_change_a_start_in_progress(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        gate, link = Hold(), system.control_plane.fleet.host("a0")
        assert link is not None
        system.agent.after_start = gate
        start = asyncio.create_task(system.start(id="s"))
        await eventually(lambda: bool(system.agent.live))
        system.agent.tell_snapshot()
        system.agent.change_host(free_sessions=7)
        # Messages are processed in order: the session's was processed before.
        await eventually(lambda: link.report is not None and link.report.free_sessions == 6)
        assert await system.rows("SELECT state, confirmed FROM session") == [("created", 0)]
        gate.set()
        assert (await start).status == 201
        assert await system.rows("SELECT state, confirmed FROM session") == [("running", 1)]


async def test_a_restarted_agent_disturbs_nothing(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        await system.agent.restart()
        link = system.control_plane.fleet.host("a0")
        assert link is not None
        await eventually(lambda: link.incarnation == system.agent.incarnation)
        assert await system.status_of("s") == "running"
        assert link.in_flight == 0
        assert (await system.start()).status == 201


async def test_a_snapshot_that_is_not_reconciled_ends_nothing(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        (internal_id,) = system.agent.sessions
        session = system.agent.sessions.pop(internal_id)
        system.agent.reconciled = False
        system.agent.tell_snapshot()
        system.agent.change_host(free_sessions=7)
        link = system.control_plane.fleet.host("a0")
        assert link is not None
        await eventually(lambda: link.report is not None and link.report.free_sessions == 7)
        assert await system.status_of("s") == "running"
        system.agent.sessions[internal_id] = session


async def test_a_session_that_vanished_is_dead(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        system.agent.lose(next(iter(system.agent.sessions)))
        system.agent.tell_snapshot()
        await system.becomes("s", "dead")
        await system.nothing_is_left()


async def test_a_session_that_a_stop_does_not_find_returns_its_ports(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        pins = [{"container": 7777, "host": 20500}]
        assert (await system.start(id="s", ports=pins)).status == 201
        assert_error(await system.start(ports=pins), 420)
        system.agent.lose(next(iter(system.agent.sessions)))
        assert (await system.call("DELETE", "/session/s")).status == 204
        assert (await system.start(ports=pins)).status == 201


async def test_a_session_that_is_stored_as_ended_and_absent_returns_its_ports(
    tmp_path: Path,
) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        pins = [{"container": 7777, "host": 20500}]
        assert (await system.start(id="s", ports=pins)).status == 201
        await system.rows("UPDATE session SET state='exited', ended_ms=1")
        system.agent.lose(next(iter(system.agent.sessions)))
        system.agent.tell_snapshot()
        link = system.control_plane.fleet.host("a0")
        assert link is not None
        await eventually(lambda: not link._sessions)
        assert (await system.start(ports=pins)).status == 201


async def test_a_discarded_session_returns_its_ports(tmp_path: Path) -> None:
    async with System(tmp_path, start_timeout=1.6) as system:
        await system.make_application()
        system.agent.after_start = system.agent.hang
        assert_error(await system.start(), 420)
        await system.nothing_is_left()
        link = system.control_plane.fleet.host("a0")
        assert link is not None
        await eventually(lambda: not link._sessions)
        assert system.agent.sessions == {}


async def test_an_unresponsive_host_is_unreachable_and_its_stop_remembered(tmp_path: Path) -> None:
    async with System(tmp_path, unreachable_after=0.2, unresponsive_after=0.1) as system:
        system.agent.beat = 0.02
        await system.agent.restart()
        await system.make_application()
        await system.start(id="s")
        await system.agent.stop()
        await system.becomes("s", "server_unreachable")
        assert_error(await system.start(), 404)
        assert_error(await system.call("DELETE", "/session/s"), 503)
        assert_error(await system.call("GET", "/logs?id=s"), 503)
        await system.agent.restart()
        await system.becomes("s", "exited")
        assert len(system.agent.stopped) == 1


async def test_a_session_reported_again_after_its_end_stays_ended(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        await system.start(id="s")
        (internal_id,) = system.agent.sessions
        system.agent.end(internal_id)
        await system.becomes("s", "exited")
        system.agent.change(internal_id, state=agent_pb2.STATE_RUNNING)
        await eventually(lambda: internal_id in system.agent.stopped)
        assert await system.status_of("s") == "exited"


async def test_a_draining_host_is_lack_of_capacity_and_no_missing_tag(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.make_application()
        system.agent.change_host(draining=True)
        await eventually(lambda: system.control_plane.fleet.is_draining("a0"))
        answer = await system.start()
        assert_error(answer, 420)
        assert "Retry-After" in answer.headers
        await system.nothing_is_left()


async def test_readiness_waits_for_a_reconciled_snapshot(tmp_path: Path) -> None:
    async with System(tmp_path) as system:
        await system.stop_serving()
        system.agent.reconciled = False
        stopped = system.control_plane
        serving = asyncio.create_task(system.serve())
        await eventually(lambda: system.control_plane is not stopped)
        await eventually(lambda: bool(system.agent._watchers))
        await system.control_plane.listening.wait()
        assert_error(await system.call("GET", "/readyz"), 503)
        system.agent.reconciled = True
        system.agent.tell_snapshot()
        await serving
        assert (await system.call("GET", "/readyz")).status == 200


async def _edit(system: System, sql: str) -> None:
    """Change the database of a stopped control plane."""
    store = Store(system.config.database)
    await store.open()
    await store.run(lambda db: db.execute(sql))
    await store.close()
