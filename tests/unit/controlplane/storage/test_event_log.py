"""Events are written with the transactions that append them."""

import asyncio

import pytest

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.errors import ConflictError, StoreError
from controlplane.domain.events.fleet import DatabaseRestored, RegionCreated
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from tests.support.controlplane.transactions import blocked, run_sql


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


async def test_row_has_the_fields_of_its_kind_as_json(store: Store) -> None:
    await store.run(lambda db: db.append(DatabaseRestored("", "", ITSELF, 1.5, of="x")))
    columns = "time_ms, kind, account, actor, address, object, data"
    [row] = await store.read(run_sql, f"SELECT {columns} FROM event")
    assert row == (1500, "database.restored", "", "controlplane", "", "", '{"of": "x"}')
