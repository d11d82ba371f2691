"""The store: whole transactions, committed together, never cancelled, never lost."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from pathlib import Path

import pytest
from sqlite_utils import Database

from controlplane.domain.errors import ConflictError, StoreError
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from controlplane.storage.engine.store import Store, queue_as
from tests.support.controlplane.system import PATIENCE


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    opened = Store(tmp_path / "state" / "test.db")
    await opened.open()
    yield opened
    await opened.close()


def _insert(db: Database, name: str) -> str:
    db.execute("INSERT INTO region(name) VALUES (?)", (name,))
    return name


def _all(db: Database) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


async def _names(store: Store) -> list[str]:
    return await store.run(_all)


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def test_failing_transaction_undoes_only_itself(store: Store) -> None:
    gate = threading.Event()
    blocked = asyncio.create_task(store.run(lambda _: gate.wait()))

    def refuse(db: Database) -> str:
        _insert(db, "bad")
        raise ConflictError("as scripted")

    resolved: list[str] = []
    batch = [
        asyncio.create_task(store.run_then(resolved.append, _insert, name))
        for name in ("a", "a", "b")
    ]
    batch.insert(1, asyncio.create_task(store.run_then(resolved.append, refuse)))
    await asyncio.sleep(0)
    gate.set()
    await blocked
    results = await asyncio.gather(*batch, return_exceptions=True)
    assert results[0] == "a"
    assert isinstance(results[1], ConflictError)
    assert isinstance(results[2], StoreError)
    assert results[3] == "b"
    assert resolved == ["a", "b"]
    assert await _names(store) == ["a", "b"]


async def test_waiting_transactions_share_one_commit(store: Store) -> None:
    gate = threading.Event()
    commits: list[str] = []

    def trace(db: Database) -> None:
        db.conn.set_trace_callback(lambda sql: commits.append(sql) if sql == "COMMIT" else None)
        gate.wait()

    blocked = asyncio.create_task(store.run(trace))
    await asyncio.sleep(0)
    batch = [asyncio.create_task(store.run(_insert, str(n))) for n in range(9)]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(blocked, *batch)
    assert len(commits) <= 2


async def test_a_cancelled_caller_leaves_no_transaction_open(store: Store) -> None:
    gate = threading.Event()

    def slow(db: Database) -> None:
        gate.wait()
        _insert(db, "slow")

    task = asyncio.create_task(store.run(slow))
    await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    gate.set()
    await store.run(lambda db: _insert(db, "next"))
    assert await _names(store) == ["next", "slow"]


async def test_close_finishes_queued_transactions(tmp_path: Path) -> None:
    store = Store(tmp_path / "test.db")
    await store.open()
    sent = asyncio.create_task(store.run(lambda db: _insert(db, "last")))
    await asyncio.sleep(0)
    await store.close()
    assert await sent == "last"
    with pytest.raises(StoreError):
        await _names(store)


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"cannot open .*test\.db"):
        await Store(path).open()


def test_migrations_run_once_and_in_order() -> None:
    db = Database(sqlite3.connect(":memory:", isolation_level=None))
    migrate(db)
    steps = (*MIGRATIONS, "CREATE TABLE later(x); INSERT INTO later VALUES (1);")
    migrate(db, steps)
    migrate(db, steps)
    assert db.execute("SELECT count(*) FROM later").fetchone()[0] == 1
    with pytest.raises(StoreError, match="newer"):
        migrate(db)
    db.close()


async def test_reads_do_not_wait_and_see_resolved_transactions(store: Store) -> None:
    await store.run(lambda db: _insert(db, "before"))
    gate = threading.Event()

    def slow(db: Database) -> None:
        _insert(db, "during")
        gate.wait()

    writing = asyncio.create_task(store.run(slow))
    await asyncio.sleep(0)
    try:
        async with asyncio.timeout(PATIENCE):
            assert await store.read(_all) == ["before"]
    finally:
        gate.set()
        await writing
    assert await store.read(_all) == ["before", "during"]


@pytest.mark.parametrize("sql", ["INSERT INTO region(name) VALUES ('x')", "SELECT nothing"])
async def test_reads_cannot_write_and_report_failures(store: Store, sql: str) -> None:
    with pytest.raises(StoreError, match="the database failed"):
        await store.read(Database.execute, sql)
    assert await _names(store) == []


async def test_close_finishes_reads_and_leaves_one_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "test.db")
    with pytest.raises(StoreError, match="not open"):
        await store.read(_all)
    await store.open()
    reading = asyncio.create_task(store.read(_all))
    await asyncio.sleep(0)
    await store.close()
    assert await reading == []
    with pytest.raises(StoreError, match="not open"):
        await store.read(_all)
    assert _files(tmp_path) == ["test.db"]  # checkpointed


async def test_looks_do_not_wait_and_see_one_snapshot(store: Store) -> None:
    held, go_on = threading.Event(), threading.Event()

    def hold(db: Database) -> None:
        _insert(db, "written")
        held.set()
        assert go_on.wait(PATIENCE)

    def names(db: Database) -> list[str]:
        return [row[0] for row in db.execute("SELECT name FROM region")]

    def names_twice(db: Database) -> tuple[list[str], list[str]]:
        first = names(db)
        go_on.set()
        assert committed.wait(PATIENCE)
        return first, names(db)

    writing, committed = asyncio.create_task(store.run(hold)), threading.Event()
    writing.add_done_callback(lambda _: committed.set())
    assert await asyncio.to_thread(held.wait, PATIENCE)
    assert await store.look(names) == []
    assert await store.look(names_twice) == ([], [])
    await writing
    assert await store.look(names) == ["written"]


async def test_failing_look_does_not_affect_others(store: Store) -> None:
    looks: list[Coroutine[None, None, object]] = [
        store.look(lambda db: db.execute("SELECT * FROM nothing").fetchone()),
        store.look(lambda db: _insert(db, "x")),
        store.look(lambda db: db.execute("SELECT 1").fetchone()[0]),
    ]
    *failed, found = await asyncio.gather(*looks, return_exceptions=True)
    assert [type(each) for each in failed] == [StoreError, StoreError]
    assert found == 1
    assert await _names(store) == []


async def test_a_reader_that_cannot_be_opened_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Path) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("controlplane.storage.engine.store._connect_reader", failing)
    store = Store(tmp_path / "x.db")
    with pytest.raises(StoreError, match="unable to open"):
        await store.open()
    with pytest.raises(StoreError, match="not open"):
        await store.run(lambda _: None)


_QUEUES: dict[str, Callable[[Store, Callable[[], object]], Awaitable[object]]] = {
    "run": lambda store, do: store.run(lambda _: do()),
    "look": lambda store, do: store.look(lambda _: do()),
    "read": lambda store, do: store.read(lambda _: do()),
}


@pytest.mark.parametrize("queue", _QUEUES)
async def test_every_queue_is_fair_between_accounts(store: Store, queue: str) -> None:
    send, began, gate = _QUEUES[queue], threading.Event(), threading.Event()
    done: list[str] = []

    def hold() -> None:
        began.set()
        assert gate.wait(PATIENCE)

    async def ask(account: str) -> None:
        queue_as(account)
        await send(store, lambda: done.append(account))

    holding = asyncio.ensure_future(send(store, hold))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    asking = [asyncio.create_task(ask("alice")) for _ in range(500)]
    asking += [asyncio.create_task(ask(account)) for account in ("bob", "carol", "bob")]
    await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *asking)
    assert done[:6] == ["alice", "bob", "carol", "alice", "bob", "alice"]
    assert len(done) == 503


async def test_child_tasks_queue_under_the_same_account(store: Store) -> None:
    began, gate = threading.Event(), threading.Event()
    done: list[str] = []

    def hold(_: Database) -> None:
        began.set()
        assert gate.wait(PATIENCE)

    async def start(account: str, count: int) -> None:
        queue_as(account)
        sent = [store.run(lambda _: done.append(account)) for _ in range(count)]
        await asyncio.gather(*(asyncio.create_task(each) for each in sent))

    holding = asyncio.create_task(store.run(hold))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    starting = [asyncio.create_task(start(*each)) for each in (("alice", 9), ("bob", 1))]
    for _ in range(3):
        await asyncio.sleep(0)
    gate.set()
    await asyncio.gather(holding, *starting)
    assert done[:2] == ["alice", "bob"]
