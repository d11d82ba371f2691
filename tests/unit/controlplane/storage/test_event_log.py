"""Events are written with the transactions that append them."""

import asyncio
from pathlib import Path

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.errors import ConflictError, StoreError
from controlplane.domain.events.fleet import DatabaseRestored, RegionCreated
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import begin_epoch
from controlplane.storage.engine.store import Store
from tests.support.controlplane.transactions import blocked, opened, run_sql


def append(db: Database, *names: str) -> None:
    for name in names:
        db.append(RegionCreated("", name, ITSELF, 1.0))


def append_and_fail(db: Database, name: str) -> None:
    append(db, name)
    raise ConflictError("as scripted")


async def objects(store: Store) -> list[str]:
    rows = await store.read(run_sql, "SELECT object FROM event ORDER BY sequence")
    return [name for (name,) in rows]


async def test_caller_goes_on_after_its_events_are_in_the_log(store: Store) -> None:
    await store.run(append, "a", "b")
    assert await objects(store) == ["a", "b"]


async def test_events_of_a_batch_are_in_order_without_those_of_undone_transactions(
    store: Store,
) -> None:
    async with blocked(store.run):
        first = asyncio.create_task(store.run(append, "a", "b"))
        failing = asyncio.create_task(store.run(append_and_fail, "undone"))
        last = asyncio.create_task(store.run(append, "c"))
        await asyncio.sleep(0)
    await asyncio.gather(first, failing, last, return_exceptions=True)
    assert await objects(store) == ["a", "b", "c"]


async def test_events_of_a_batch_that_cannot_be_committed_are_dropped(store: Store) -> None:
    no = "BEGIN SELECT RAISE(ABORT, 'no'); END"
    await store.run(
        run_sql, f"CREATE TRIGGER no_b BEFORE INSERT ON event WHEN NEW.object='b' {no}"
    )
    with pytest.raises(StoreError):
        await store.run(append, "b")
    await store.run(append, "c")
    assert await objects(store) == ["c"]


async def test_numbers_follow_the_commits_without_a_gap(store: Store) -> None:
    for name in ("a", "b", "c"):
        await store.run(append, name)
    with pytest.raises(ConflictError):
        await store.run(append_and_fail, "undone")
    await store.run(append, "d", "e")
    rows = await store.read(run_sql, "SELECT sequence FROM event ORDER BY sequence")
    assert [number for (number,) in rows] == [1, 2, 3, 4, 5]


async def test_numbers_of_removed_events_are_not_used_again(store: Store) -> None:
    await store.run(append, "a", "b")
    await store.run(run_sql, "DELETE FROM event")
    await store.run(append, "c")
    assert await store.read(run_sql, "SELECT sequence FROM event") == [(3,)]


async def test_two_processes_number_one_log(tmp_path: Path) -> None:
    async with opened(tmp_path / "db") as one, opened(tmp_path / "db") as other:
        for name in ("a", "b", "c"):
            await asyncio.gather(one.run(append, name), other.run(append, name))
        rows = await one.read(run_sql, "SELECT sequence FROM event ORDER BY sequence")
    assert [number for (number,) in rows] == [1, 2, 3, 4, 5, 6]


async def test_subscribers_hear_once_per_commit_that_the_log_has_grown(store: Store) -> None:
    heard: list[Change] = []
    store.changes.subscribe({Topic.EVENT}, heard.append)
    await store.run(append, "a", "b")
    await store.run(run_sql, "DELETE FROM event")
    assert heard == [Change(Topic.EVENT)]


async def test_epochs_grow_and_are_at_least_the_time(store: Store) -> None:
    epochs = []
    for now in (1000.5, 1000.5, 10.0):
        await store.run(begin_epoch, now)
        epochs += await store.read(run_sql, "SELECT epoch FROM event_counter")
    assert epochs == [(1000,), (1001,), (1002,)]


async def test_row_has_the_fields_of_its_kind_as_json(store: Store) -> None:
    await store.run(lambda db: db.append(DatabaseRestored("", "", ITSELF, 1.5, of="x")))
    columns = "time_ms, kind, version, account, actor, address, object, data"
    [row] = await store.read(run_sql, f"SELECT {columns} FROM event")
    assert row == (1500, "database.restored", 1, "", "controlplane", "", "", '{"of": "x"}')
