"""The threads of a store begin, end and fail without leaving a job waiting."""

import asyncio
import threading
from pathlib import Path

import pytest

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.sqlite import SqliteDatabase, connect_writer
from controlplane.storage.engine.store import Store
from tests.support.controlplane.system import PATIENCE
from tests.support.controlplane.transactions import blocked


def _insert(db: Database, name: str) -> str:
    db.execute("INSERT INTO region(name) VALUES (:name)", {"name": name})
    return name


def _all(db: Database) -> list[str]:
    return [row[0] for row in db.execute("SELECT name FROM region ORDER BY name")]


async def test_store_that_was_closed_and_opened_again_runs_jobs(tmp_path: Path) -> None:
    store = Store(tmp_path / "test.db")
    for name in ("a", "b"):
        await store.open()
        async with asyncio.timeout(PATIENCE):
            assert await store.run(_insert, name) == name
            assert name in await store.look(_all)
        await store.close()


async def test_jobs_sent_while_the_store_closes_fail_at_once(tmp_path: Path) -> None:
    store = Store(tmp_path / "test.db")
    await store.open()
    async with blocked(store.run):
        written = asyncio.create_task(store.run(_insert, "before"))
        await asyncio.sleep(0)
        closing = [asyncio.create_task(store.close()) for _ in range(2)]
        await asyncio.sleep(0)
        with pytest.raises(StoreError, match="not open"):
            await store.run(_insert, "meanwhile")
        assert not any(task.done() for task in closing)
    await asyncio.gather(*closing)
    assert await written == "before"


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
async def test_jobs_of_a_thread_that_failed_are_not_left_waiting(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object, **__: object) -> None:
        raise MemoryError

    monkeypatch.setattr("controlplane.storage.engine.store.commit_batch", failing)
    store = Store(tmp_path / "test.db")
    await store.open()
    async with asyncio.timeout(PATIENCE):
        sent = [store.run(_insert, name) for name in ("a", "b")]
        results = await asyncio.gather(*sent, return_exceptions=True)
        assert [type(result) for result in results] == [StoreError, StoreError]
        with pytest.raises(StoreError, match="not open"):
            await store.run(_insert, "c")
        await store.close()


async def test_store_whose_opening_was_cancelled_is_closed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    began = threading.Event()
    gate = threading.Event()

    def connect(path: Path) -> SqliteDatabase:
        began.set()
        assert gate.wait(PATIENCE)
        return connect_writer(path)

    monkeypatch.setattr("controlplane.storage.engine.store.connect_writer", connect)
    store = Store(tmp_path / "test.db")
    opening = asyncio.create_task(store.open())
    await asyncio.to_thread(began.wait, PATIENCE)
    opening.cancel()
    with pytest.raises(asyncio.CancelledError):
        await opening
    gate.set()
    await store.close()
    assert "store" not in [thread.name for thread in threading.enumerate()]
