"""`Prefer: wait=ready`: a start that is answered once players can reach the session."""

import asyncio
import time
from typing import Any

import pytest

from controlplane.sessions import wait_ready
from controlplane.sessions.sessions import STOP_WAIT
from tests.support.controlplane.agent_scripts import Script, refusing
from tests.support.controlplane.system import (
    PATIENCE,
    Answer,
    System,
    assert_error,
    eventually,
    eventually_equals,
)
from tests.support.fake_clock import FakeClock
from tiltyard.agent.v1 import agent_pb2

APPLIED = "Preference-Applied"


@pytest.fixture
async def system(system: System) -> System:
    await system.make_application()
    system.agent.binds_at_once = False
    return system


async def start(system: System, session_id: str, wait: str = "wait=60") -> Answer:
    return await system.start(id=session_id, headers={"Prefer": f"wait=ready; {wait}"})


def begin(system: System, session_id: str, wait: str = "wait=60") -> asyncio.Task[Answer]:
    return asyncio.create_task(start(system, session_id, wait), name=f"caller {session_id}")


async def running(system: System, session_id: str) -> str:
    """Wait until a session runs and its start is over; return its internal id."""
    await system.becomes(session_id, "running")
    under_way = system.control_plane.starts.under_way
    await eventually(lambda: under_way.get("alice", session_id) is None)
    by_id = {session.identity.session_id: session for session in system.agent.live}
    return by_id[session_id].internal_id


async def test_answers_when_the_ports_are_bound(system: System) -> None:
    starting = begin(system, "match")
    internal_id = await running(system, "match")
    system.agent.change(internal_id, detail="still loading")
    assert (await system.read("/session/match"))["status"] == "running"
    assert not starting.done()

    async def shown() -> Any:
        """Return the time that operators see."""
        (session,) = (await system.read("/operator/session"))["sessions"]
        return session["ready"]

    assert await shown() is None
    system.agent.bind(internal_id)
    answer = await starting
    assert await shown() == system.agent.sessions[internal_id].ready_time.ToMilliseconds()
    assert answer.status == 201
    assert answer.headers[APPLIED] == "wait=ready"
    assert answer.headers["Location"] == "/session/match"
    assert [port["container"] for port in answer.json["ports"]] == [7777, 7778]


async def test_answers_without_waiting_unless_a_header_prefers_it(system: System) -> None:
    """A preference is one element of one header: its parameters are not preferences."""
    for headers in ({}, {"Prefer": "wait=60"}, {"Prefer": "return=minimal; wait=ready"}):
        answer = (await system.start(headers=headers)).expect(201)
        assert APPLIED not in answer.headers


async def test_several_headers_of_preferences_are_read_together(system: System) -> None:
    system.agent.binds_at_once = True
    several = [
        ("Authorization", f"Bearer {system.tokens['alice']}"),
        ("Prefer", "return=minimal"),
        ("Prefer", "wait=ready"),
    ]
    url = f"{system.control_plane.base_url}/session"
    body = {"location": "local", "image": "game"}
    async with system.http.post(url, json=body, headers=several) as answer:
        assert answer.status == 201
        assert answer.headers[APPLIED] == "wait=ready"


async def test_session_not_ready_in_time_is_stopped(system: System) -> None:
    answer = assert_error(await start(system, "match", "wait=1"), 504, details="match")
    assert "not bound in time" in answer.json["details"]
    assert APPLIED not in answer.headers
    assert await system.status_of("match") == "exited"
    assert_error(await start(system, "match"), 409)
    await system.nothing_is_left()


async def test_ports_that_were_not_bound_are_named(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.sessions.wait_ready.BINDINGS_TIMEOUT", PATIENCE)
    rcon = agent_pb2.BoundPort(protocol=agent_pb2.PROTOCOL_TCP, port=28785)
    system.agent.bound_instead = [rcon]
    answer = assert_error(await start(system, "match", "wait=1"), 504)
    why_not = "its ports were not bound in time: udp/7777, tcp/7778 were not bound; tcp/28785 was"
    assert answer.json["details"].endswith(why_not)


@pytest.mark.parametrize(
    "script",
    [
        refusing("UNIMPLEMENTED"),
        refusing("ENGINE_ERROR"),
        refusing("SESSION_NOT_FOUND"),
    ],
    ids=["older agent", "kernel", "session"],
)
async def test_host_that_cannot_name_the_ports_changes_nothing(
    system: System, script: Script
) -> None:
    system.agent.before_bindings = script
    answer = assert_error(await start(system, "match", "wait=1"), 504)
    assert answer.json["details"].endswith("its ports were not bound in time")
    assert await system.status_of("match") == "exited"


async def test_session_that_ends_before_it_is_ready_ends_the_wait(system: System) -> None:
    starting = begin(system, "match")
    system.agent.end(await running(system, "match"))
    assert_error(await starting, 504, details="ended before")
    assert await system.status_of("match") == "exited"


async def test_detail_of_a_session_that_ended_is_in_the_answer(system: System) -> None:
    starting = begin(system, "match")
    internal_id = await running(system, "match")
    system.agent.sessions[internal_id].detail = "its image starts as root"
    system.agent.end(internal_id)
    answer = assert_error(await starting, 504)
    text = "it ended before its ports were bound: its image starts as root"
    assert answer.json["details"].endswith(text)


async def test_stop_of_a_session_ends_the_wait_for_it(system: System) -> None:
    starting = begin(system, "match")
    await running(system, "match")
    assert (await system.call("DELETE", "/session/match")).status == 204
    assert_error(await starting, 504, details="ended before")


async def test_wait_survives_re_enrolment_of_the_host(system: System) -> None:
    starting = begin(system, "match")
    internal_id = await running(system, "match")
    fleet = system.control_plane.fleet
    link = fleet.host(system.agent.name)
    assert link is not None
    fleet.remove(link.name)
    fleet.add(link.state.row)
    await eventually(lambda: fleet.session(link.name, internal_id) is not None)
    assert not starting.done()
    system.agent.bind(internal_id)
    assert (await starting).status == 201


async def test_failed_run_does_not_count_as_ready(system: System) -> None:
    """A session that restarts must become ready again."""
    starting = begin(system, "match")
    internal_id = await running(system, "match")
    system.agent.sessions[internal_id].ready_time.GetCurrentTime()
    system.agent.change(internal_id, state=agent_pb2.STATE_RESTARTING)
    await system.becomes("match", "restarting")
    assert not starting.done()
    system.agent.change(internal_id, state=agent_pb2.STATE_RUNNING)
    assert (await starting).status == 201


async def test_client_that_hangs_up_does_not_cancel_the_start(system: System) -> None:
    """The session stays if it becomes ready in time, and is stopped otherwise."""
    system.clock = clock = FakeClock(time.time())
    await system.restart()
    callers = begin(system, "stays"), begin(system, "ends", "wait=1")
    begun = "SELECT count(*) FROM session WHERE state != 'created'"
    await eventually_equals(lambda: system.rows(begun), [(2,)])
    for caller in callers:
        caller.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller
    system.agent.bind(await running(system, "stays"))
    await clock.leap(1)
    await system.becomes("ends", "exited")
    assert await system.status_of("stays") == "running"


async def test_wait_survives_restart_of_the_agent(system: System) -> None:
    system.agent.sequence = 1000  # the next process counts from 0
    starting = begin(system, "match")
    internal_id = await running(system, "match")
    await system.agent.restart()
    system.agent.bind(internal_id)
    assert (await starting).status == 201


async def test_wait_for_unreachable_host_ends_in_time(system: System) -> None:
    system.clock = clock = FakeClock(time.time())
    await system.restart()
    starting = begin(system, "match")
    await running(system, "match")
    await system.agent.stop()
    await clock.leap(60)
    stopping = "SELECT 1 FROM session WHERE stop_requested_ms > 0"
    await eventually_equals(lambda: system.rows(stopping), [(1,)])
    await clock.leap(STOP_WAIT)
    assert_error(await starting, 504)


async def test_shutdown_ends_the_wait_and_keeps_the_session(system: System) -> None:
    starting = begin(system, "match")
    await running(system, "match")
    assert (await system.start(id="ends")).status == 201
    ends = await running(system, "ends")
    await system.stop_serving()
    assert_error(await starting, 503, details="keeps running")
    system.agent.end(ends)  # meanwhile
    await system.serve()
    await system.becomes("ends", "exited")
    await system.becomes("match", "running")
    assert system.agent.stopped == []


@pytest.mark.parametrize(
    ("limit", "has_room_for_bob"),
    [
        (1, False),
        (2, True),
    ],
)
async def test_answers_at_once_beyond_the_share_of_waits(
    system: System, monkeypatch: pytest.MonkeyPatch, limit: int, *, has_room_for_bob: bool
) -> None:
    monkeypatch.setattr(wait_ready, "MOST_AT_ONCE", limit)
    starting = begin(system, "first")
    internal_id = await running(system, "first")
    answer = (await start(system, "second")).expect(201)
    assert APPLIED not in answer.headers
    waits = system.control_plane.ready_starts
    assert waits.has_room("bob") == has_room_for_bob
    system.agent.bind(internal_id)
    assert (await starting).headers[APPLIED] == "wait=ready"
    assert waits.has_room("alice")
