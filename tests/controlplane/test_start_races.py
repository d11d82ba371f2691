"""Concurrent starts and stops: a row names one attempt at most; no stop is lost."""

import asyncio
import gc
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from controlplane.agent_rpc.client import AgentClient
from controlplane.domain.errors import StoreError
from controlplane.domain.hosts.contract import Claim
from controlplane.sessions.sessions import STOP_WAIT
from controlplane.sessions.start import CALL_SHARE, CLAIM_SHARE, MAX_UNANSWERED_CLAIMS
from controlplane.storage.tables.sessions.sessions import (
    begin_attempt,
    end_attempt,
    free,
    request_stop,
)
from tests.controlplane.warm_pools import keep
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tests.support.controlplane.transactions import (
    Go,
    fail_once,
    intercept,
    intercept_answers,
)
from tests.support.controlplane.waits import until_called_off
from tests.support.fake_clock import FakeClock
from tests.support.hold import Hold
from tiltyard.agent.v1 import agent_pb2

pytestmark = pytest.mark.system(application={})


@pytest.fixture
async def pair(tmp_path: Path) -> AsyncIterator[System]:
    """Two hosts; the second has no start slots at first."""
    async with System(tmp_path, agents=2) as system:
        await system.make_application()
        system.agents[1].change_host(start_slots=0)
        await system.has_reported("a1", start_slots=0)
        yield system


async def stop_of_x(system: System) -> asyncio.Task[Answer]:
    """Send a DELETE and return once the start under way waits for it."""
    stopper = asyncio.create_task(system.call("DELETE", "/session/x"))
    await until_called_off(system)
    return stopper


@pytest.mark.parametrize("slots", [1, 0])
async def test_first_attempt_is_committed_with_its_row_if_a_host_is_free(
    system: System, monkeypatch: pytest.MonkeyPatch, slots: int
) -> None:
    begun: list[Go] = []

    async def noted(go: Go) -> None:
        begun.append(go)
        await go()

    intercept(monkeypatch, begin_attempt, noted)
    system.agent.change_host(start_slots=slots)
    await system.has_reported("a0", start_slots=slots)
    post = asyncio.create_task(system.start(id="x"))
    queue = system.control_plane.starts.queue
    await eventually(lambda: post.done() or any(queue.waiting().values()))
    system.agent.change_host(start_slots=1)
    assert (await post).status == 201
    assert len(begun) == 1 - slots


async def test_delete_whose_caller_hangs_up_during_a_start_still_stops_it(system: System) -> None:
    post, gate = await system.held_start(id="x")
    stopper = await stop_of_x(system)
    stopper.cancel()
    await asyncio.gather(stopper, return_exceptions=True)
    gate.set()
    assert_error(await post, 409)
    await system.becomes("x", "exited")
    assert not system.agent.live


async def test_refusal_of_a_start_whose_caller_hung_up_is_no_defect(
    system: System, caplog: pytest.LogCaptureFixture
) -> None:
    gc.collect()
    caplog.clear()  # of earlier tests
    gate = Hold()
    refuse = refusing("IMAGE_CANNOT_RUN")

    async def refuse_late(request: Any, context: Any) -> None:
        await gate()
        await refuse(request, context)

    system.agent.before_start = refuse_late
    post = asyncio.create_task(system.start(id="x"))
    await gate.reached.wait()
    post.cancel()
    await asyncio.wait({post})
    gate.set()
    await eventually(lambda: system.control_plane.starts.under_way.get("alice", "x") is None)
    assert await system.rows("SELECT 1 FROM session") == []
    await system.stop_serving()
    gc.collect()
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_refused_attempt_leaves_the_row_while_the_start_waits(pair: System) -> None:
    """Else a snapshot without it would free the id."""
    first, second = pair.agents
    first.before_start = refusing("NOT_RECONCILED")
    post = asyncio.create_task(pair.start(id="x"))

    async def waits() -> bool:
        rows = await pair.rows("SELECT internal_id, agent FROM session")
        return len(first.started) == 1 and rows == [(None, None)]

    await eventually(waits)
    first.send_snapshot()
    link = pair.link(first.name)
    seen = link.state.sequence
    first.change_host(start_slots=7)
    await eventually(lambda: link.state.sequence > seen)
    assert await pair.status_of("x") == "created"
    assert_error(await pair.start(id="x"), 409)
    second.change_host(start_slots=8)
    assert (await post).status == 201
    assert [session.identity.session_id for session in second.live] == ["x"]


async def test_a_snapshot_does_not_free_the_id_of_a_start_between_two_hosts(
    pair: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The refused attempt leaves its row before reports of it are evaluated again."""
    first, second = pair.agents
    first.before_start = refusing("NO_CAPACITY")
    gate = Hold()

    async def held(go: Go) -> None:
        await gate()
        await go()

    intercept(monkeypatch, end_attempt, held)
    post = asyncio.create_task(pair.start(id="x"))
    await gate.reached.wait()
    first.send_snapshot()
    first.change_host(start_slots=7)
    await pair.has_reported("a0", start_slots=7)
    second.change_host(start_slots=8)
    await pair.has_reported("a1", start_slots=8)
    gate.set()
    assert (await post).status == 201
    assert [session.identity.session_id for session in second.live] == ["x"]


async def test_session_reported_during_failing_start_is_shown(system: System) -> None:
    """It ran and was stopped; its row stays until retention removes it."""

    async def fail_afterwards(go: Go) -> None:
        await go()
        raise StoreError("as scripted")

    intercept_answers(system, fail_afterwards)
    assert_error(await system.start(id="x"), 503)
    await system.becomes("x", "exited")
    await system.nothing_is_left()


async def test_session_of_attempt_is_stopped_when_the_database_fails(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stop does not wait for the next snapshot of the host."""

    async def failing(_: Go) -> None:
        raise StoreError("as scripted")

    async def refuse_once_reported(request: Any, context: Any) -> None:
        system.agent.change_host(start_slots=7)
        await system.has_reported("a0", start_slots=7)  # the report was first
        await refusing("ENGINE_TIMEOUT")(request, context)

    intercept(monkeypatch, end_attempt, failing)
    system.agent.after_start = refuse_once_reported
    assert_error(await system.start(id="x"), 503)
    await eventually(lambda: not system.agent.live)
    await system.nothing_is_left()


async def test_a_call_to_a_host_leaves_time_for_the_answer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.sessions.start.RESERVE", 40.0)
    system.control_plane.starts.start_timeout = 60.0
    left: list[float] = []

    async def note(_: Any, context: Any) -> None:
        left.append(context.time_remaining())

    system.agent.before_start = note
    assert (await system.start(id="x")).status == 201
    assert 0 < left[0] < 25


async def test_a_database_that_fails_once_does_not_keep_the_id(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    intercept(monkeypatch, free, fail_once(StoreError("disk full")))
    system.agent.before_start = refusing("NO_CAPACITY")
    assert_error(await system.start(id="x"), 420)
    system.agent.before_start = None
    await system.nothing_is_left()
    assert (await system.start(id="x")).status == 201


async def test_delete_deadline_includes_its_wait_for_the_start(tmp_path: Path) -> None:
    names = ("start_timeout", "unresponsive_after", "unreachable_after")
    patient: dict[str, Any] = dict.fromkeys(names, 60.0)
    system = System(tmp_path, **patient)
    system.clock = clock = FakeClock()
    async with system:
        await system.make_application()
        post, gate = await system.held_start(id="x")
        hanging = system.agent.before_stop = Hold()
        stopper = await stop_of_x(system)
        clock.stall(STOP_WAIT - 1)
        gate.set()
        await hanging.reached.wait()
        await clock.leap(1)
        assert_error(await stopper, 503)
        await post
        hanging.set()


async def test_delete_stops_session_of_its_start_but_no_newer_one(system: System) -> None:
    gate = Hold()

    async def refused_late(request: Any, context: Any) -> None:
        await gate()
        await refusing("NO_CAPACITY")(request, context)

    system.agent.before_start = refused_late
    post = asyncio.create_task(system.start(id="x"))
    await gate.reached.wait()
    stopper = await stop_of_x(system)
    system.agent.before_start = None
    gate.set()
    while (again := await system.start(id="x")).status == 409:
        pass
    assert again.status == 201
    assert (await stopper).status == 204
    assert_error(await post, 409)
    assert await system.status_of("x") == "running"


async def test_long_stop_is_answered_before_it_ends(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await system.start(id="x")).status == 201
    gate = asyncio.Event()
    marked: list[Any] = []

    async def slow(request: Any, _: Any) -> None:
        system.agent.change(request.internal_id, state=agent_pb2.STATE_SHUTTINGDOWN)
        await gate.wait()

    async def noted(go: Go) -> Any:
        marked.append(await go())
        return marked[-1]

    system.agent.before_stop = slow
    intercept(monkeypatch, request_stop, noted)
    patient = [asyncio.create_task(system.call("DELETE", "/session/x")) for _ in range(2)]
    await eventually(lambda: len(marked) == len(patient))
    await system.becomes("x", "shuttingdown")
    system.control_plane.sessions.stop_wait = 0.05
    assert (await system.call("DELETE", "/session/x")).status == 204
    assert await system.status_of("x") == "shuttingdown"
    assert not any(stop.done() for stop in patient)
    gate.set()
    assert [(await stop).status for stop in patient] == [204, 204]
    await system.becomes("x", "exited")


@pytest.mark.system(agents=2, in_order=True, application={})
async def test_unresponsive_host_comes_last_until_its_next_report(system: System) -> None:
    first, second = system.agents

    async def reports(free_sessions: int) -> None:
        first.change_host(free_sessions=free_sessions)
        await system.has_reported(first.name, free_sessions=free_sessions)

    async def dies(_: Any, context: Any) -> None:
        await context.abort(grpc.StatusCode.UNAVAILABLE, "gone")

    first.before_start = dies
    first.beat = 3600.0
    await reports(500)
    tried = []
    for session_id in ("1", "2", "3"):
        assert (await system.start(id=session_id)).status == 201
        tried.append(len(first.started))
        if session_id == "2":
            await reports(501)
    assert tried == [1, 1, 2]
    assert len(second.live) == 3
    assert await system.rows("SELECT DISTINCT agent FROM stop_order") == [(first.name,)]
    await first.stop()
    assert (await system.start(id="4")).status == 201
    assert len(second.live) == 4


@pytest.mark.system(start_timeout=600.0, application={})
async def test_a_caller_who_waits_longer_has_hosts_that_may_take_longer(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A host is given a share of what the caller waits."""
    given: list[float] = []
    claim = AgentClient.claim_session

    async def look(_: Any, context: Any) -> None:
        given.append(context.time_remaining())

    async def noted(client: AgentClient, wanted: Claim, timeout: float, known: Any) -> Any:
        given.append(timeout)
        return await claim(client, wanted, timeout, known)

    monkeypatch.setattr(AgentClient, "claim_session", noted)
    system.agent.before_start = look
    assert (await system.start()).status == 201
    await keep(system, size=1)
    assert (await system.start()).status == 201
    assert len(system.agent.started) == 1
    assert len(system.agent.claimed) == 1
    cold, warm = given
    # A minute is for a machine that stands still; gRPC rounds up what it sends.
    assert cold == pytest.approx(600 * CALL_SHARE, abs=60)
    assert warm == pytest.approx(600 * CLAIM_SHARE, abs=60)
    assert CALL_SHARE <= 1 / 2
    assert CALL_SHARE + MAX_UNANSWERED_CLAIMS * CLAIM_SHARE <= 1
