"""Concurrent DELETE and POST of one id: a 204 holds, whichever is faster."""

import asyncio
from collections import Counter
from random import Random
from typing import Any

import pytest

from controlplane.domain.access.audit import Actor
from controlplane.domain.access.callers import Caller
from controlplane.domain.errors import ConflictError, NotFoundError, TiltyardError
from controlplane.sessions.start_request import StartRequest
from controlplane.storage.engine import worker
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access.accounts import note_use
from controlplane.storage.tables.hosts.conditions import write_reported
from controlplane.storage.tables.sessions.reports import write_stopped
from controlplane.storage.tables.sessions.sessions import request_stop, reserve
from tests.faults.plugin import Rounds
from tests.support.controlplane.agent_scripts import refusing
from tests.support.controlplane.system import System, assert_error, eventually
from tests.support.controlplane.transactions import Go, intercept, run_sql
from tests.support.controlplane.waits import until_called_off
from tests.support.hold import Hold, held_before

AT_ONCE = 4
DELETERS = 4
SMALL = {"cpu": 0.01, "ram": 8}
ALICE = Caller("alice", "token", frozenset())

pytestmark = pytest.mark.system(
    agents=2,
    start_rate=1e6,
    start_burst=10**6,
    application={"limits": SMALL, "reservation": SMALL},
)


@pytest.fixture
def gate(system: System) -> Hold:
    """Block starts before they read their application."""
    return held_before(system.control_plane.services.applications, "startable")


async def both(system: System, gate: Hold, **fields: Any) -> tuple[Any, Any]:
    """Return the answers to a POST of x that waits at the gate, and to a DELETE meanwhile."""
    post = asyncio.create_task(system.start(id="x", **fields))
    await gate.reached.wait()
    stop = asyncio.create_task(system.call("DELETE", "/session/x"))
    await until_called_off(system)
    gate.set()
    return await post, await stop


class Race:
    """DELETEs that are repeated until 204, and a concurrent POST of the same id."""

    def __init__(self, system: System) -> None:
        self._starts = system.control_plane.starts
        self._stops = system.control_plane.sessions
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self.answers: Counter[str] = Counter()

    async def play(self, session_id: str, delays: list[int]) -> None:
        """Send a POST, and a DELETE after each delay in event-loop steps."""
        over = asyncio.Event()
        async with self._at_once, asyncio.TaskGroup() as deleters:
            for steps in delays:
                deleters.create_task(self._delete(session_id, steps, over))
            try:
                await self._starts.start(ALICE, StartRequest("local", "game", session_id))
                self.answers["201"] += 1
            except TiltyardError as error:
                self.answers[error.reason.name] += 1
            over.set()

    async def _delete(self, session_id: str, steps: int, over: asyncio.Event) -> None:
        for _ in range(steps):
            await asyncio.sleep(0)
        is_last = False
        while not is_last:
            is_last = over.is_set()
            try:
                await self._stops.stop(ALICE, session_id)
            except NotFoundError:
                continue
            except ConflictError:
                return
            self.answers["204"] += 1
            return


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize(
    "standbys",
    [
        pytest.param(0, marks=pytest.mark.thorough),
        pytest.param(50),
    ],
)
async def test_no_answered_delete_is_lost(system: System, standbys: int, rounds: Rounds) -> None:
    count = rounds(500, 2000)
    for agent in system.agents:
        agent.change_host(start_slots=64, free_sessions=10**6)
    if standbys:
        body = {"size": standbys}
        assert (await system.call("PUT", "/warm-pool/game/local", json=body)).status == 204
        await eventually(lambda: sum(len(a.standbys) for a in system.agents) == standbys)
    race = Race(system)
    random = Random(1)
    await asyncio.gather(
        *(
            race.play(str(number), random.choices(range(200), k=DELETERS))
            for number in range(count)
        )
    )
    assert not await system.rows("SELECT id FROM session WHERE ended_ms IS NULL")
    assert not any(agent.live for agent in system.agents)
    assert any(agent.claimed for agent in system.agents) == bool(standbys)
    assert race.answers["CONFLICT"]  # how many depends on how busy the machine is
    assert race.answers["204"] >= count


async def test_a_delete_waits_for_a_start_whose_row_is_just_committed(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Hold()

    async def held(go: Go) -> Any:
        begun = await go()
        await gate()
        return begun

    intercept(monkeypatch, reserve, held)
    post, stop = await both(system, gate)
    assert_error(post, 409)
    assert stop.status == 204
    await system.nothing_is_left()
    assert not any(agent.started for agent in system.agents)


@pytest.mark.parametrize(
    ("image", "status"),
    [
        ("game", 409),
        ("nothing", 404),
    ],
)
async def test_a_delete_waits_for_a_start_that_has_no_row_yet(
    system: System, gate: Hold, image: str, status: int
) -> None:
    post, stop = await both(system, gate, image=image)
    assert_error(post, status)
    assert stop.status == 204
    assert not await system.rows("SELECT 1 FROM session")
    assert_error(await system.call("DELETE", "/session/x"), 404)


async def test_delete_during_start_of_used_id_stops_existing_session(
    system: System, gate: Hold
) -> None:
    gate.set()
    assert (await system.start(id="x")).status == 201
    gate.clear()
    gate.reached.clear()
    post, stop = await both(system, gate)
    assert_error(post, 409)
    assert stop.status == 204
    assert await system.status_of("x") == "exited"


async def test_second_start_of_an_id_does_not_affect_the_first(system: System, gate: Hold) -> None:
    first = asyncio.create_task(system.start(id="x"))
    await gate.reached.wait()
    assert_error(await system.start(id="x"), 409)
    stop = asyncio.create_task(system.call("DELETE", "/session/x"))
    await until_called_off(system)
    gate.set()
    assert_error(await first, 409)
    assert (await stop).status == 204
    await system.nothing_is_left()


async def mark(system: System, name: str) -> None:
    """Mark a session to be stopped, as another control plane on the same database does."""
    store = system.control_plane.store
    assert await store.run(request_stop, "alice", name, actor=Actor("other"), now=1) is not None


async def marked_at(system: System, gate: Hold) -> None:
    """Mark a start while its host is at the gate; the start is refused."""
    post = asyncio.create_task(system.start(id="x"))
    await gate.reached.wait()
    await mark(system, "x")
    gate.set()
    assert_error(await post, 409)


@pytest.mark.part_alone
async def test_f51_stop_mark_ends_start_before_its_next_host(system: System) -> None:
    gate = Hold()

    async def refuse(request: Any, context: Any) -> None:
        await gate()
        await refusing("NO_CAPACITY")(request, context)

    for agent in system.agents:
        agent.before_start = refuse
    await marked_at(system, gate)
    assert sum(len(agent.started) for agent in system.agents) == 1
    await system.nothing_is_left()


@pytest.mark.part_alone
async def test_f51_stop_mark_ends_started_session(system: System) -> None:
    gate = Hold()
    for agent in system.agents:
        agent.after_start = gate
    await marked_at(system, gate)
    await system.becomes("x", "exited")
    await system.nothing_is_left()


def stored(db: Database) -> list[Any]:
    """Read what is stored about the stop of the only session."""
    return [
        run_sql(db, statement)
        for statement in (
            "SELECT * FROM session",
            "SELECT * FROM stop_order",
            "SELECT * FROM event WHERE kind LIKE 'session.%'",
        )
    ]


async def test_a_stop_is_two_transactions_and_its_report(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert (await system.start(id="x")).status == 201
    ran: list[object] = []
    run = Store.run

    async def noted(self: Store, transaction: Any, *more: Any, **named: Any) -> Any:
        is_of_caller = worker._account.get() == "alice"

        def comparing(db: Database) -> Any:
            before = stored(db)
            result = transaction(db, *more, **named)
            if is_of_caller or stored(db) != before:
                ran.append(transaction)
            return result

        return await run(self, comparing)

    monkeypatch.setattr(Store, "run", noted)
    (await system.call("DELETE", "/session/x")).expect(204)
    await system.catches_up()
    of_other_work = {write_reported, note_use}
    assert [transaction for transaction in ran if transaction not in of_other_work] == [
        request_stop,
        write_stopped,
    ]
