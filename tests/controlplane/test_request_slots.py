"""One account's flood: how many of its requests are worked on, and who is served meanwhile."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controlplane.admission.request_slots import RequestSlots, release_request_slot
from controlplane.domain.errors import AccountBusyError
from controlplane.storage.tables.sessions import players
from tests.support.controlplane.raw_http import Wire
from tests.support.controlplane.system import (
    PATIENCE,
    Answer,
    System,
    assert_error,
    eventually,
    eventually_equals,
)
from tests.support.controlplane.transactions import Go, blocked, connection_of, intercept
from tests.support.hold import Hold
from tiltyard.runtime.clock import SystemClock

GAME = "/application/game"


class Instant(SystemClock):
    """Waits for nothing."""

    async def sleep(self, seconds: float) -> None:
        await super().sleep(0)


@asynccontextmanager
async def bounded(folder: Path, slots: RequestSlots, **settings: Any) -> AsyncIterator[System]:
    """Have a control plane with few slots, and the sessions `m` of two accounts."""
    system = System(folder, **settings)
    system.parts["request_slots"] = slots
    async with system:
        for account in ("alice", "bob"):
            await system.make_application(account=account)
            assert (await system.start(account=account, id="m")).status == 201
        yield system


@asynccontextmanager
async def hanging_joins(system: System, count: int) -> AsyncIterator[asyncio.Semaphore]:
    """Have joins of alice that stay under way; each release of the semaphore ends one."""
    sessions = system.control_plane.sessions
    join = sessions.join
    ends = asyncio.Semaphore(0)

    async def join_and_hang(*arguments: Any) -> list[str]:
        joined = await join(*arguments)
        await ends.acquire()
        return joined

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(sessions, "join", join_and_hang)
        joins = [asyncio.create_task(system.join(f"p{number}")) for number in range(count)]
        try:
            await eventually_equals(lambda: system.rows("SELECT count(*) FROM player"), [(count,)])
            yield ends
        finally:
            for _ in joins:
                ends.release()
            await asyncio.gather(*joins)


async def test_requests_of_an_account_beyond_its_slots_wait(tmp_path: Path) -> None:
    slots = RequestSlots(Instant(), at_once=2)
    async with bounded(tmp_path, slots) as system, hanging_joins(system, 2) as ends:
        waiting = asyncio.create_task(system.call("GET", "/session/m"))
        for _ in range(20):
            assert (await system.call("GET", "/session/m", account="bob")).status == 200
        assert not waiting.done()
        ends.release()
        assert (await waiting).status == 200


async def test_one_more_than_may_wait_is_503_before_anything_but_401(tmp_path: Path) -> None:
    slots = RequestSlots(Instant(), at_once=1, most_waiting=1)
    async with bounded(tmp_path, slots) as system:
        reader = await system.make_token(name="reader", scopes=["session:read"])
        async with hanging_joins(system, 1) as ends:
            both = [asyncio.create_task(system.call("GET", "/session/m")) for _ in range(2)]
            done, (waiting,) = await asyncio.wait(both, return_when="FIRST_COMPLETED")
            refused = assert_error(done.pop().result(), 503)
            assert refused.headers["Retry-After"] == "1"
            assert refused.json["message"] == "too many requests of this account are in progress"
            assert_error(await system.call("PUT", "/warm-pool/x/y", token=reader, json=[]), 503)
            assert_error(await system.call("GET", "/session/m", token="ty_x_y"), 401)
            assert (await system.call("GET", "/session/m", account="bob")).status == 200
            operator = system.operator_token
            (await system.call("GET", "/operator/session", token=operator)).expect(200)
            for path in ("/healthz", "/readyz", "/openapi.json"):
                assert (await system.call("GET", path)).status == 200
            ends.release()
            assert (await waiting).status == 200
        assert (await system.call("GET", "/session/m")).status == 200


async def _report(system: System) -> Answer:
    await system.call("DELETE", "/session/m")
    return await system.call("GET", "/session/m/report")


@pytest.mark.parametrize(
    ("call", "asked"),
    [
        (lambda s: s.start(), "before_start"),
        (lambda s: s.call("DELETE", "/session/m"), "before_stop"),
        (lambda s: s.call("GET", "/logs?id=m&follow=true"), "before_logs"),
        (_report, "before_report"),
        (lambda s: s.call("POST", f"{GAME}/tags", json={"tag": "v1"}), "registry"),
        (lambda s: s.call("GET", f"{GAME}/tags/available"), "registry"),
    ],
)
async def test_a_call_that_waits_for_others_holds_no_slot(
    tmp_path: Path, call: Callable[[System], Any], asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.registries.http.TIMEOUT", aiohttp.ClientTimeout(total=60))
    async with bounded(tmp_path, RequestSlots(Instant(), at_once=1), start_timeout=60) as system:
        hold = Hold()
        before = len(system.registry.asked)
        if asked == "registry":
            system.registry.hangs = True
        else:
            setattr(system.agent, asked, hold)
        calls = [asyncio.create_task(call(system)) for _ in range(2)]
        try:
            await eventually(lambda: hold.reached.is_set() or len(system.registry.asked) > before)
            assert (await system.call("GET", "/session/m")).status == 200
            assert not any(task.done() for task in calls)
        finally:
            hold.set()
            for task in calls:
                task.cancel()
            system.registry.answer_again()
            await asyncio.gather(*calls, return_exceptions=True)


async def test_a_body_that_is_on_its_way_takes_no_slot(tmp_path: Path) -> None:
    async with bounded(tmp_path, RequestSlots(Instant(), at_once=1)) as system:
        body = b'{"session": "m", "players": ["late"]}'
        head = f"PUT /session/player/join HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n"
        head += f"Authorization: Bearer {system.tokens['alice']}\r\nExpect: 100-continue\r\n\r\n"
        async with Wire(system.port) as wire:
            wire.send(head.encode())
            assert (await wire.reader.readline()).startswith(b"HTTP/1.1 100")
            await wire.reader.readline()
            assert (await system.join("soon")).status == 200
            wire.send(body)
            answer = await wire.read_answer()
        assert answer.json["players"] == ["soon", "late"]


async def test_a_list_with_a_stalled_reader_holds_no_slot(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controlplane.api.operations.operation.AT_ONCE", 1)
    monkeypatch.setattr("controlplane.api.operations.operation.READER_WAIT", 0)
    labels = json.dumps({"more than all buffers hold": "x" * 2**24})
    async with bounded(tmp_path, RequestSlots(Instant(), at_once=1)) as system:
        for name in ("n", "o"):
            assert (await system.start(id=name)).status == 201
        await system.control_plane.store.run(
            lambda db: db.execute("UPDATE session SET labels=:labels", {"labels": labels})
        )
        async with Wire(system.port) as wire:
            bearer = f"Authorization: Bearer {system.tokens['alice']}"
            wire.send(f"GET /session HTTP/1.1\r\nHost: x\r\n{bearer}\r\n\r\n".encode())
            await wire.reader.readuntil(b"\r\n\r\n")
            async with asyncio.timeout(PATIENCE):
                assert (await system.call("GET", "/application")).status == 200


async def test_requests_queue_at_the_database_as_their_accounts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    joined: list[str] = []

    def note_join(sql: str) -> None:
        if sql.startswith("INSERT INTO player("):
            joined.append("alice" if "'alice'" in sql else "bob")

    async with bounded(tmp_path, RequestSlots(Instant(), at_once_shared=32)) as system:
        names = ("a", "b", "c", "d")
        tokens = [await system.make_token(name=n, scopes=["session:players"]) for n in names]
        for token in tokens:  # its first use is written, too
            assert (await system.join("first", token=token)).status == 200
        sent: list[object] = []

        async def note(go: Go) -> Any:
            sent.append(go)
            return await go()

        intercept(monkeypatch, players.join, note)
        store = system.control_plane.store
        async with blocked(store.run, lambda db: connection_of(db).set_trace_callback(note_join)):
            calls = [
                asyncio.create_task(system.join(f"p{number}", token=tokens[number % 4]))
                for number in range(20)
            ]
            await eventually(lambda: len(sent) == 20)
            calls.append(asyncio.create_task(system.join("q", account="bob")))
            await eventually(lambda: len(sent) == 21)
        await asyncio.gather(*calls)
        assert joined.index("bob") == 1
        assert len(joined) == 21


async def test_slots_are_given_in_the_order_of_arrival() -> None:
    slots = RequestSlots(Instant(), at_once=1)
    first = await slots.take("a")
    given: list[int] = []

    async def ask(number: int) -> None:
        slot = await slots.take("a")
        given.append(number)
        slot.release()
        slot.release()

    asking = [asyncio.create_task(ask(number)) for number in range(5)]
    await asyncio.sleep(0)
    asking[0].cancel()
    first.release()  # before the cancelled task has run again
    await asyncio.gather(*asking, return_exceptions=True)
    assert given == [1, 2, 3, 4]
    (await slots.take("a")).release()


async def test_a_slot_given_too_late_goes_to_the_next() -> None:
    slots = RequestSlots(Instant(), at_once=1)
    first = await slots.take("a")
    gone, waiting = (asyncio.create_task(slots.take("a")) for _ in range(2))
    await asyncio.sleep(0)
    first.release()
    gone.cancel()  # it was given the slot in this step, and has not taken it yet
    async with asyncio.timeout(PATIENCE):
        (await waiting).release()
    assert gone.cancelled()


async def test_any_task_of_a_request_releases_its_slot() -> None:
    slots = RequestSlots(Instant(), at_once=1, most_waiting=1)

    async def work() -> None:
        release_request_slot()
        release_request_slot()

    for _ in range(3):
        slot = await slots.take("a")
        await asyncio.create_task(work())
        slot.release()
    await slots.take("a")
    waiting = asyncio.create_task(slots.take("a"))
    await asyncio.sleep(0)
    with pytest.raises(AccountBusyError):
        await slots.take("a")
    waiting.cancel()


async def test_fewer_are_worked_on_while_others_call() -> None:
    slots = RequestSlots(Instant(), at_once=3, at_once_shared=1)
    alice = [await slots.take("alice") for _ in range(3)]
    bob = await slots.take("bob")
    waiting = [asyncio.create_task(slots.take("alice")) for _ in range(2)]
    for slot in alice:
        await asyncio.sleep(0)
        assert not any(task.done() for task in waiting)
        slot.release()
    first = await waiting[0]
    await asyncio.sleep(0)
    assert not waiting[1].done()
    first.release()
    (await waiting[1]).release()
    bob.release()


async def test_operators_need_no_slot() -> None:
    slots = RequestSlots(Instant(), at_once=1, most_waiting=0)
    for _ in range(3):
        await slots.take("")
