"""Readers of the log get each event once, in order, and wait for further ones."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.errors import StoreError
from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.players import PlayersJoined
from controlplane.domain.events.positions import EventsGoneError, Position
from controlplane.domain.events.sessions import SessionSubject
from controlplane.events import event_log
from controlplane.events.event_log import FOLLOWED_FOR, EventLog
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_reading import read_after, read_newer
from controlplane.storage.tables.accounting.event_retention import remove_of_players
from tests.support.controlplane.session_events import starting
from tests.support.controlplane.system import eventually
from tests.support.controlplane.transactions import Go, fail_once, intercept, opened
from tests.support.fake_clock import FakeClock

ALICE = EventFilter("alice")


def append(db: Database, *names: str, account: str = "alice") -> None:
    for name in names:
        db.append(starting(account, name, 1000.0))


def append_players(db: Database, *players: str) -> None:
    subject = SessionSubject("alice", "m", "game", "v1", "local", "{}")
    db.append(PlayersJoined(*subject.named(ITSELF, 1000.0), players=players))


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
async def log(store: Store, clock: FakeClock) -> AsyncIterator[EventLog]:
    made = EventLog(store, clock)
    yield made
    await made.close()


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The functions that have read events from the database."""
    called: list[object] = []

    def count(function: object) -> None:
        async def around(go: Go) -> object:
            called.append(function)
            return await go()

        intercept(monkeypatch, function, around)

    count(read_after)
    count(read_newer)
    return called


async def names(log: EventLog, after: Position, wanted: EventFilter = ALICE) -> list[str]:
    batch = await log.read(wanted, after)
    return [event.row.object for event in batch.events]


async def waiting(
    log: EventLog, after: Position, account: str | None = "alice"
) -> "asyncio.Task[Position]":
    """Begin to wait for events."""
    task = asyncio.create_task(log.changed(account, after))
    await eventually(lambda: log.waiting(account) > 0)
    return task


async def test_reader_is_woken_by_an_event_of_its_account(store: Store, log: EventLog) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    await store.run(append, "s")
    assert await task == start
    assert await names(log, start) == ["s"]


async def test_events_of_others_wake_nobody_and_are_passed_over(
    store: Store, log: EventLog
) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    everything = await waiting(log, start, None)
    await store.run(append, "x", "y", account="bob")
    assert await everything == start
    assert not task.done()
    await store.run(append, "s")
    assert await task == (start.epoch, start.number + 2)


async def test_wait_ends_after_its_time_at_the_newest_position(
    store: Store, log: EventLog
) -> None:
    start = await log.newest()
    everything = await waiting(log, start, None)
    await store.run(append, "x", account="bob")
    await everything
    assert await log.changed("alice", start, wait=0.0) == await log.newest()


async def test_events_that_were_appended_before_the_wait_end_it(
    store: Store, log: EventLog
) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    await store.run(append, "a")
    await task
    async with asyncio.timeout(5):
        assert await log.changed("alice", start) == start


async def test_one_read_serves_all_readers(
    store: Store, log: EventLog, reads: list[object]
) -> None:
    start = await log.newest()
    tasks = [await waiting(log, start), await waiting(log, start, None)]
    await store.run(append, "s")
    await asyncio.gather(*tasks)
    assert await names(log, start) == ["s"]
    assert await names(log, start, EventFilter(None, is_operator=True)) == ["s"]
    assert reads == [read_newer]


async def test_nothing_is_read_while_nobody_waits(
    store: Store, log: EventLog, clock: FakeClock, reads: list[object]
) -> None:
    await store.run(append, "before")
    task = await waiting(log, await log.newest())
    task.cancel()
    await asyncio.wait({task})
    await clock.advance(FOLLOWED_FOR + 1)
    await store.run(append, "a")
    assert reads == []
    start = Position(1, 0)
    assert await names(log, start) == ["before", "a"]
    assert reads == [read_after]


async def test_reader_far_behind_reads_the_database(
    store: Store, log: EventLog, reads: list[object]
) -> None:
    await store.run(append, "old")
    task = await waiting(log, await log.newest())
    await store.run(append, "new")
    await task
    assert await names(log, Position(1, 0)) == ["old", "new"]
    assert reads == [read_newer, read_after]


async def test_events_of_another_process_come_with_the_next_change(
    tmp_path: Path, store: Store, log: EventLog
) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    async with opened(tmp_path / "controlplane.db") as other:
        await other.run(append, "theirs")
    store.changes.publish([Change(Topic.EVENT)])
    await task
    assert await names(log, start) == ["theirs"]


async def test_reading_goes_on_after_the_database_failed(
    store: Store, log: EventLog, clock: FakeClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    intercept(monkeypatch, read_newer, fail_once(StoreError("as scripted")))
    start = await log.newest()
    task = await waiting(log, start)
    await store.run(append, "s")
    await clock.advance(1.0)
    await task
    assert await names(log, start) == ["s"]


async def test_new_epoch_wakes_all_readers_and_is_reported(store: Store, log: EventLog) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    await store.run(begin_epoch, 7.0)
    await store.run(append, "s", account="bob")
    await task
    with pytest.raises(EventsGoneError) as raised:
        await log.read(ALICE, start)
    assert raised.value.resume == (7, 0)


async def test_many_readers_are_woken_in_portions(
    store: Store, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other work runs in between."""
    monkeypatch.setattr(event_log, "WOKEN_AT_ONCE", 2)
    start = await log.newest()
    order: list[str] = []

    async def read() -> None:
        await log.changed("alice", start)
        order.append("reader")

    async def other() -> None:
        while order.count("reader") < 6:
            if order and order[-1] == "reader":
                order.append("other")
            await asyncio.sleep(0)

    readers = [asyncio.create_task(read()) for _ in range(6)]
    await eventually(lambda: log.waiting("alice") == 6)
    beside = asyncio.create_task(other())
    await store.run(append, "s")
    await asyncio.gather(*readers, beside)
    assert order == ["reader", "reader", "other", "reader", "reader", "other", "reader", "reader"]


async def test_players_whose_events_were_removed_are_not_read_from_memory(
    store: Store, log: EventLog
) -> None:
    start = await log.newest()
    task = await waiting(log, start)
    await store.run(append_players, "ann")
    await task
    wanted = EventFilter("alice", kinds=("players.*",))
    assert await names(log, start, wanted) == ["m"]
    task = await waiting(log, await log.newest())
    await store.run(remove_of_players, 2000.0)
    await store.run(append, "next")
    await task
    with pytest.raises(EventsGoneError):
        await log.read(wanted, start)
    assert await names(log, start) == ["next"]
