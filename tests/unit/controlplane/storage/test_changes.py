"""After a COMMIT the store publishes what its transactions have changed."""

import asyncio
import sqlite3

import pytest

from controlplane.domain.errors import ConflictError
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from tests.support.controlplane.system import PATIENCE
from tests.support.controlplane.transactions import blocked, connection_of


@pytest.fixture
def heard(store: Store) -> list[Change]:
    heard: list[Change] = []
    store.changes.subscribe(Topic, heard.append)
    return heard


def change(db: Database, *names: str) -> None:
    for name in names:
        db.changed(Topic.REGION, name)


def change_and_fail(db: Database, name: str) -> None:
    change(db, name)
    raise ConflictError("as scripted")


def names(heard: list[Change]) -> list[str]:
    return [change.key[0] for change in heard]


async def test_caller_goes_on_after_its_changes_were_heard(
    store: Store, heard: list[Change]
) -> None:
    await store.run(change, "a", "b")
    assert heard == [Change(Topic.REGION, ("a",)), Change(Topic.REGION, ("b",))]


async def test_error_of_one_who_hears_is_logged_and_harms_nobody(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Change) -> None:
        raise ValueError("as scripted")

    heard: list[Change] = []
    store.changes.subscribe(Topic, fail)
    store.changes.subscribe(Topic, heard.append)
    async with asyncio.timeout(PATIENCE):
        await store.run(change, "a", "b")
    assert names(heard) == ["a", "b"]
    assert len(caplog.records) == len(heard)


async def test_changes_are_heard_in_order_and_once_per_commit(
    store: Store, heard: list[Change]
) -> None:
    async with blocked(store.run):
        batch = [asyncio.create_task(store.run(change, name, "x")) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
    await asyncio.gather(*batch)
    assert names(heard) == ["a", "x", "b", "c"]


async def test_undone_transaction_is_not_heard(store: Store, heard: list[Change]) -> None:
    async with blocked(store.run):
        first = asyncio.create_task(store.run(change, "a"))
        failing = asyncio.create_task(store.run(change_and_fail, "undone"))
        last = asyncio.create_task(store.run(change, "b"))
        await asyncio.sleep(0)
    await asyncio.gather(first, failing, last, return_exceptions=True)
    assert names(heard) == ["a", "b"]


async def test_failed_commit_is_not_heard(store: Store, heard: list[Change]) -> None:
    def break_commit(db: Database) -> None:
        change(db, "undone")
        connection_of(db).execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(Exception, match="disk I/O"):
        await store.run(break_commit)
    await store.run(change, "next")
    assert names(heard) == ["next"]


async def test_cancelled_caller_does_not_keep_changes_from_being_heard(
    store: Store, heard: list[Change]
) -> None:
    async with blocked(store.run):
        task = asyncio.create_task(store.run(change, "a"))
        await asyncio.sleep(0)
        task.cancel()
    await store.run(change)
    assert names(heard) == ["a"]


async def test_only_topics_subscribed_to_are_heard(store: Store) -> None:
    heard: list[Change] = []
    store.changes.subscribe({Topic.TOKEN}, heard.append)
    await store.run(change, "a")
    assert heard == []
