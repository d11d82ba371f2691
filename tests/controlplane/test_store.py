"""The store: whole transactions, committed together, never cancelled, never lost."""

import asyncio
import sqlite3
import threading
from collections.abc import AsyncIterator, Coroutine
from pathlib import Path

import pytest
import sqlite_utils

from controlplane.app.control_plane import ControlPlane
from controlplane.domain.errors import ConflictError, StoreError
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from controlplane.storage.engine.store import Store
from controlplane.storage.engine.worker import queue_as
from tests.support.controlplane.system import PATIENCE, System
from tests.support.controlplane.transactions import blocked, connection_of, opened


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[Store]:
    async with opened(tmp_path / "state" / "test.db") as store:
        yield store


def _insert(db: Database, name: str) -> str:
    db.execute("INSERT INTO region(name) VALUES (:name)", {"name": name})
    return name


def _all(db: Database) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


async def _names(store: Store) -> list[str]:
    return await store.run(_all)


def _files(folder: Path) -> list[str]:
    return [file.name for file in folder.iterdir()]


async def test_failing_transaction_undoes_only_itself(store: Store) -> None:
    def refuse(db: Database) -> str:
        _insert(db, "bad")
        raise ConflictError("as scripted")

    async with blocked(store.run):
        batch = [asyncio.create_task(store.run(_insert, name)) for name in ("a", "a", "b")]
        batch.insert(1, asyncio.create_task(store.run(refuse)))
        await asyncio.sleep(0)
    results = await asyncio.gather(*batch, return_exceptions=True)
    first, refused, twice, last = results
    assert first == "a"
    assert type(refused) is ConflictError
    assert type(twice) is StoreError
    assert last == "b"
    assert await _names(store) == ["a", "b"]


async def test_savepoint_of_a_wide_transaction_has_no_file(store: Store) -> None:
    def rename_all(db: Database) -> list[str]:
        db.execute("UPDATE region SET name = name || 'x'")
        return [
            str(link.readlink()) for link in Path("/proc/self/fd").iterdir() if link.is_symlink()
        ]

    for number in range(100):
        await store.run(_insert, f"{number:0>4000}")
    files = await store.run(rename_all)
    assert not [file for file in files if "etilqs" in file]


async def test_waiting_transactions_share_one_commit(store: Store) -> None:
    traced: list[str] = []

    def trace(db: Database) -> None:
        connection_of(db).set_trace_callback(traced.append)

    async with blocked(store.run, trace):
        batch = [asyncio.create_task(store.run(_insert, str(n))) for n in range(9)]
        await asyncio.sleep(0)
    await asyncio.gather(*batch)
    assert traced.count("COMMIT") <= 2


async def test_a_cancelled_caller_leaves_no_transaction_open(store: Store) -> None:
    async with blocked(store.run):
        task = asyncio.create_task(store.run(_insert, "cancelled"))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    await store.run(_insert, "next")
    assert await _names(store) == ["cancelled", "next"]


async def test_close_finishes_what_was_sent_and_leaves_one_file(tmp_path: Path) -> None:
    store = Store(tmp_path / "test.db")
    with pytest.raises(StoreError, match="not open"):
        await store.read(_all)
    await store.open()
    written = asyncio.create_task(store.run(_insert, "last"))
    read = asyncio.create_task(store.read(lambda _: "read"))
    await asyncio.sleep(0)
    await store.close()
    assert await written == "last"
    assert await read == "read"
    for ask in (store.run, store.read):
        with pytest.raises(StoreError, match="not open"):
            await ask(_all)
    assert _files(tmp_path) == ["test.db"]  # checkpointed


async def test_a_damaged_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "test.db"
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StoreError, match=r"cannot open .*test\.db"):
        await Store(path).open()


def test_migrations_run_once_and_in_order() -> None:
    db = sqlite_utils.Database(sqlite3.connect(":memory:", isolation_level=None))
    migrate(db)
    steps = (*MIGRATIONS, "CREATE TABLE later(x); INSERT INTO later VALUES (1);")
    migrate(db, steps)
    migrate(db, steps)
    assert db.execute("SELECT count(*) FROM later").fetchone()[0] == 1
    with pytest.raises(StoreError, match="newer"):
        migrate(db)
    db.close()


async def test_reads_do_not_wait_and_see_resolved_transactions(store: Store) -> None:
    await store.run(_insert, "before")
    async with blocked(store.run, lambda db: _insert(db, "during")), asyncio.timeout(PATIENCE):
        assert await store.read(_all) == ["before"]
    assert await store.read(_all) == ["before", "during"]


async def test_looks_do_not_wait_and_see_one_snapshot(store: Store) -> None:
    committed = threading.Event()

    def names_twice(db: Database) -> tuple[list[str], list[str]]:
        first = _all(db)
        gate.set()
        assert committed.wait(PATIENCE)
        return first, _all(db)

    async with blocked(store.run, lambda db: _insert(db, "written")) as (gate, writing):
        writing.add_done_callback(lambda _: committed.set())
        assert await store.look(_all) == []
        assert await store.look(names_twice) == ([], [])
    assert await store.look(_all) == ["written"]


async def test_failing_look_does_not_affect_others(store: Store) -> None:
    looks: list[Coroutine[None, None, object]] = [
        store.look(lambda db: db.execute("SELECT * FROM nothing").fetchone()),
        store.look(lambda db: _insert(db, "x")),
        store.look(lambda db: db.execute("SELECT 1").fetchone()[0]),
    ]
    unknown_table, write, found = await asyncio.gather(*looks, return_exceptions=True)
    assert type(unknown_table) is StoreError
    assert type(write) is StoreError
    assert found == 1
    assert await _names(store) == []


async def test_a_reader_that_cannot_be_opened_leaves_no_thread(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(_: Path) -> None:
        raise sqlite3.OperationalError("unable to open database file")

    monkeypatch.setattr("controlplane.storage.engine.store.connect_reader", failing)
    store = Store(tmp_path / "x.db")
    with pytest.raises(StoreError, match="unable to open"):
        await store.open()
    with pytest.raises(StoreError, match="not open"):
        await store.run(lambda _: None)


@pytest.mark.parametrize("queue", ["run", "look", "read"])
async def test_every_queue_is_fair_between_accounts(store: Store, queue: str) -> None:
    send = getattr(store, queue)
    done = list[str]()

    async def ask(account: str) -> None:
        queue_as(account)
        await send(lambda _: done.append(account))

    async with blocked(send):
        asking = [asyncio.create_task(ask("alice")) for _ in range(500)]
        asking += [asyncio.create_task(ask(account)) for account in ("bob", "carol", "bob")]
        await asyncio.sleep(0)
    await asyncio.gather(*asking)
    assert done[:6] == ["alice", "bob", "carol", "alice", "bob", "alice"]
    assert len(done) == 503


async def test_child_tasks_queue_under_the_same_account(store: Store) -> None:
    done: list[str] = []

    async def start(account: str, count: int) -> None:
        queue_as(account)
        sent = [store.run(lambda _: done.append(account)) for _ in range(count)]
        await asyncio.gather(*(asyncio.create_task(transaction) for transaction in sent))

    async with blocked(store.run):
        starting = [
            asyncio.create_task(start("alice", 9)),
            asyncio.create_task(start("bob", 1)),
        ]
        for _ in range(3):
            await asyncio.sleep(0)
    await asyncio.gather(*starting)
    assert done[:2] == ["alice", "bob"]


async def test_a_locked_database_ends_serve_and_leaves_no_thread(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    await system.stop_serving()
    monkeypatch.setattr("controlplane.storage.engine.sqlite.BUSY_TIMEOUT", 0.0)
    other = sqlite3.connect(system.config.database, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError, match="locked"):
        await ControlPlane(system.config).serve(asyncio.Event())
    other.close()
    assert "store" not in {thread.name for thread in threading.enumerate()}
    await system.serve()
