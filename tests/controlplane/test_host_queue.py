"""Waiting for a start slot: fair, bounded, and never while a slot is free."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from controlplane.domain.placement.placement import Wanted
from controlplane.fleet.host import watch
from controlplane.fleet.queue import PendingAttempt
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.fake_agent import FakeAgent
from tests.support.controlplane.shapes import key_of
from tests.support.controlplane.system import Answer, System, assert_error, eventually
from tests.support.controlplane.transactions import Go, intercept_answers
from tiltyard.contract import PreparedShape, Resources

MOST = 5
SHARE = 3  # Of one account, while no other waits


class Gate:
    """Passes the starts of an agent one by one, and records their order."""

    def __init__(self, agent: FakeAgent) -> None:
        self.begun: list[str] = []
        self._open = asyncio.Semaphore(0)
        agent.before_start = self._wait

    async def _wait(self, request: Any, _: Any) -> None:
        self.begun.append(request.spec.identity.session_id)
        await self._open.acquire()

    def open(self, times: int = 1) -> None:
        for _ in range(times):
            self._open.release()


pytestmark = pytest.mark.system(max_waiting_starts=MOST, application={})


@pytest.fixture
async def system(system: System) -> System:
    await system.make_application(account="bob", repository="studio/other")
    system.agent.change_host(start_slots=1)
    await system.has_reported("a0", start_slots=1)
    return system


def _waiting(system: System) -> int:
    return sum(system.control_plane.starts.queue.waiting().values())


def _ask(system: System, session_id: str, account: str = "alice") -> asyncio.Task[Answer]:
    return asyncio.create_task(system.start(account=account, id=session_id))


async def _begin(system: System, gate: Gate) -> asyncio.Task[Answer]:
    """Start a session that takes the only slot."""
    first = _ask(system, "first")
    await eventually(lambda: gate.begun == ["first"])
    return first


async def _join(system: System, session_id: str, account: str = "alice") -> asyncio.Task[Answer]:
    """Add a start to the queue."""
    waiting = _waiting(system)
    task = _ask(system, session_id, account)
    await eventually(lambda: _waiting(system) == waiting + 1)
    return task


async def test_free_slot_goes_to_the_next_account(system: System) -> None:
    gate = Gate(system.agent)
    asked = [await _begin(system, gate)]
    asked += [await _join(system, f"alice {number}") for number in range(3)]
    asked.append(await _join(system, "bob", "bob"))
    gate.open(9)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {201}
    assert gate.begun == ["first", "alice 0", "bob", "alice 1", "alice 2"]
    assert system.agent.most_starts_in_flight == 1


async def test_starts_beyond_a_share_of_the_queue_are_refused_at_once(system: System) -> None:
    gate = Gate(system.agent)
    asked = [await _begin(system, gate)]
    asked += [await _join(system, f"{number}") for number in range(SHARE)]
    refused = assert_error(await system.start(id="late"), 420)
    assert int(refused.headers["Retry-After"]) >= 1
    assert "3 starts are waiting for a slot, 3 of them of this account" in refused.json["details"]
    asked.append(await _join(system, "bob", "bob"))
    gate.open(9)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {201}
    assert (await system.start(id="late")).status == 201


async def test_free_slot_is_assigned_in_the_same_step(system: System) -> None:
    """Otherwise a later caller could take it while the answer is written."""
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    second = await _join(system, "second")
    link = system.control_plane.fleet.hosts[0]
    taken = []

    async def note_slots(go: Go) -> Any:
        taken.append(len(link.state.starting))
        return await go()

    intercept_answers(system, note_slots)
    gate.open(2)
    assert (await first).status == 201
    assert (await second).status == 201
    assert taken == [1, 0]


async def test_stopped_start_leaves_the_queue(system: System) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    second = await _join(system, "second")
    (await system.call("DELETE", "/session/second")).expect(204)
    assert_error(await second, 409)
    gate.open(9)
    assert (await first).status == 201
    assert gate.begun == ["first"]
    await eventually(lambda: system.link().state.in_flight == 0)


async def test_waiting_start_ends_once_no_host_has_room(system: System) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    second = await _join(system, "second")
    system.agent.change_host(draining=True)
    assert_error(await second, 420)
    gate.open(9)
    assert (await first).status == 201
    assert gate.begun == ["first"]
    await eventually(lambda: system.link().state.in_flight == 0)


async def test_the_time_for_a_start_bounds_its_wait(system: System) -> None:
    gate = Gate(system.agent)
    system.control_plane.starts.start_timeout = 60.0
    first = await _begin(system, gate)
    system.control_plane.starts.start_timeout = 4.0
    second = await _join(system, "second")
    assert_error(await second, 420)
    gate.open()
    await first
    assert gate.begun == ["first"]
    await eventually(lambda: not _waiting(system))


async def _prepare(system: System, count: int) -> None:
    """Report prepared containers for sessions like the first one."""
    spec = system.agent.started[0].spec
    key = key_of(spec)
    system.agent.host.prepared.add(key=key, image=spec.image, kept=count)
    system.agent.change_host()
    await system.has_reported("a0", prepared={key: PreparedShape(key, spec.image, count)})


async def test_prepared_container_lets_a_waiting_start_begin_without_a_slot(
    system: System,
) -> None:
    gate = Gate(system.agent)
    asked = [await _begin(system, gate)]
    asked.append(await _join(system, "second"))
    asked.append(await _join(system, "third"))
    await _prepare(system, 1)
    await eventually(lambda: gate.begun == ["first", "second"])
    assert _waiting(system) == 1, "two starts count on one container"
    gate.open(9)
    assert {answer.status for answer in await asyncio.gather(*asked)} == {201}
    assert system.agent.most_starts_in_flight == 2


async def test_start_with_a_prepared_container_begins_at_once_though_no_slot_is_free(
    system: System,
) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    await _prepare(system, 1)
    second = _ask(system, "second")
    await eventually(lambda: gate.begun == ["first", "second"])
    gate.open(9)
    assert (await first).status == 201
    assert (await second).status == 201


async def test_start_of_another_account_finds_no_prepared_container(system: System) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    await _prepare(system, 1)
    bob = await _join(system, "bob", "bob")
    gate.open(9)
    assert (await first).status == 201
    assert (await bob).status == 201
    assert gate.begun == ["first", "bob"]


async def test_slot_is_not_offered_to_starts_refused_by_its_host(tmp_path: Path) -> None:
    async with System(tmp_path, agents=2) as system:
        full, busy = system.agents
        system.prefer(full)
        await system.make_application()
        for agent in system.agents:
            agent.change_host(start_slots=1)
        gate = Gate(busy)
        full.before_start = refusing("NO_CAPACITY")
        links: list[Any] = system.control_plane.fleet.hosts
        await eventually(lambda: all(link.state.report.start_slots == 1 for link in links))
        first = await _begin(system, gate)
        second = await _join(system, "second")
        gate.open(9)
        assert (await first).status == 201
        assert (await second).status == 201
        assert gate.begun == ["first", "second"]


async def test_host_that_was_unresponsive_gets_a_waiting_start_with_its_heartbeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It sent no report for too long to be chosen, and too short for a new connection."""
    monkeypatch.setattr(watch, "MESSAGE_TIMEOUT", 3600.0)
    system = System(tmp_path, agents=2, in_order=True, unresponsive_after=1.0)
    busy, quiet = system.agents
    busy.beat = 0.05
    quiet.beat = 3600.0
    async with system:
        await system.make_application()
        busy.change_host(start_slots=1)
        await system.has_reported(busy.name, start_slots=1)
        gate = Gate(busy)
        first = await _begin(system, gate)
        fleet = system.control_plane.fleet
        await eventually(lambda: fleet.report_age(system.link(quiet.name)) > 1.0)
        second = await _join(system, "second")
        quiet.send_heartbeat()
        assert (await second).status == 201
        assert len(quiet.live) == 1
        gate.open()
        assert (await first).status == 201


async def test_start_of_a_disconnected_caller_stays_queued(system: System) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    second = await _join(system, "second")
    second.cancel()
    await asyncio.wait({second})
    gate.open(9)
    assert (await first).status == 201
    await system.becomes("second", "running")


async def test_cancelled_wait_releases_its_host(system: System) -> None:
    gate = Gate(system.agent)
    first = await _begin(system, gate)
    queue = system.control_plane.starts.queue
    link = system.control_plane.fleet.hosts[0]
    assert link.state.report is not None
    image = min(link.state.report.images)
    attempt = PendingAttempt(
        ("local", "default"), "alice", Wanted(image, Resources(), ()), "0" * 32
    )
    waits = asyncio.create_task(queue.take_host(attempt, 60.0))
    await eventually(lambda: _waiting(system) == 1)
    attempt.given.add_done_callback(lambda _: waits.cancel())
    gate.open()
    assert (await first).status == 201
    with pytest.raises(asyncio.CancelledError):
        await waits
    assert attempt.given.result() is link
    await eventually(lambda: link.state.in_flight == 0)
