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
def published(store: Store) -> list[Change]:
    published: list[Change] = []
    store.changes.subscribe(Topic, published.append)
    return published


def change(db: Database, *names: str) -> None:
    for name in names:
        db.changed(Topic.REGION, name)


def change_and_fail(db: Database, name: str) -> None:
    change(db, name)
    raise ConflictError("as scripted")


def names(published: list[Change]) -> list[str]:
    return [change.key[0] for change in published]


async def test_caller_continues_after_its_changes_were_published(
    store: Store, published: list[Change]
) -> None:
    await store.run(change, "a", "b")
    assert published == [Change(Topic.REGION, ("a",)), Change(Topic.REGION, ("b",))]


async def test_error_of_a_subscriber_is_logged_and_others_are_notified(
    store: Store, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Change) -> None:
        raise ValueError("as scripted")

    published: list[Change] = []
    store.changes.subscribe(Topic, fail)
    store.changes.subscribe(Topic, published.append)
    async with asyncio.timeout(PATIENCE):
        await store.run(change, "a", "b")
    assert names(published) == ["a", "b"]
    assert len(caplog.records) == len(published)


async def test_changes_are_published_in_order_and_once_per_commit(
    store: Store, published: list[Change]
) -> None:
    async with blocked(store.run):
        batch = [asyncio.create_task(store.run(change, name, "x")) for name in ("a", "b", "c")]
        await asyncio.sleep(0)
    await asyncio.gather(*batch)
    assert names(published) == ["a", "x", "b", "c"]


async def test_undone_transaction_is_not_published(store: Store, published: list[Change]) -> None:
    async with blocked(store.run):
        first = asyncio.create_task(store.run(change, "a"))
        failing = asyncio.create_task(store.run(change_and_fail, "undone"))
        last = asyncio.create_task(store.run(change, "b"))
        await asyncio.sleep(0)
    await asyncio.gather(first, failing, last, return_exceptions=True)
    assert names(published) == ["a", "b"]


async def test_failed_commit_is_not_published(store: Store, published: list[Change]) -> None:
    def break_commit(db: Database) -> None:
        change(db, "undone")
        connection_of(db).execute("ROLLBACK")
        raise sqlite3.OperationalError("disk I/O error")

    with pytest.raises(Exception, match="disk I/O"):
        await store.run(break_commit)
    await store.run(change, "next")
    assert names(published) == ["next"]


async def test_changes_of_a_cancelled_caller_are_published(
    store: Store, published: list[Change]
) -> None:
    async with blocked(store.run):
        task = asyncio.create_task(store.run(change, "a"))
        await asyncio.sleep(0)
        task.cancel()
    await store.run(change)
    assert names(published) == ["a"]


async def test_subscriber_gets_only_its_topics(store: Store) -> None:
    published: list[Change] = []
    store.changes.subscribe({Topic.TOKEN}, published.append)
    await store.run(change, "a")
    assert published == []
