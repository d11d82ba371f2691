"""Remembered results are those of the transactions that resolved before."""

import asyncio
import inspect
import re

import pytest

from controlplane.storage.engine.memo import Memo
from controlplane.storage.engine.store import Database, Store
from controlplane.storage.tables.accounts import note_use
from controlplane.storage.tables.hot import HOT
from tests.support.fake_clock import until_idle

CATALOG = "account|token|application|tag|registry|region|node_pool"


def regions(db: Database, name: str) -> str | None:
    looks.append(name)
    sql = "SELECT name FROM region WHERE name LIKE ? ORDER BY name"
    row = db.execute(sql, (f"{name}%",)).fetchone()
    return None if row is None else str(row[0])


def add(db: Database, name: str) -> None:
    db.execute("INSERT INTO region(name) VALUES (?)", (name,))


def count(db: Database) -> int:
    return int(db.execute("SELECT count(*) FROM region").fetchone()[0])


looks: list[str] = []


@pytest.fixture
async def store(store: Store) -> Store:
    looks.clear()
    await store.run(add, "north")
    return store


async def test_result_is_looked_up_once_until_a_transaction_may_change_it(store: Store) -> None:
    memo = Memo(store, regions, most=10, without={count})
    for _ in range(3):
        assert await memo.get("n") == "north"
        await store.run(count)
    assert looks == ["n"]
    await store.run(add, "n")
    assert await memo.get("n") == "n"


async def test_what_does_not_exist_is_looked_up_each_time(store: Store) -> None:
    memo = Memo(store, regions, most=10, without=())
    assert [await memo.get("x") for _ in range(2)] == [None, None]
    assert looks == ["x", "x"]


async def test_keeps_the_last_used(store: Store) -> None:
    memo = Memo(store, regions, most=2, without=())
    for name in ("n", "no", "n", "nor", "n", "no"):
        assert await memo.get(name) == "north"
    assert looks == ["n", "no", "nor", "no"]


@pytest.mark.part_alone
async def test_f52_look_that_a_transaction_overtakes_is_not_kept(store: Store) -> None:
    memo = Memo(store, regions, most=10, without=())
    begun = asyncio.create_task(memo.get("n"))
    await asyncio.sleep(0)
    await store.run(add, "n")
    await begun
    assert await memo.get("n") == "n"


@pytest.mark.part_alone
async def test_f52_change_of_a_dropped_result_is_not_kept(store: Store) -> None:
    memo = Memo(store, regions, most=10, without={count})
    known = await memo.get("n")
    assert known is not None
    memo.amend("n", known, "amended")
    assert await memo.get("n") == "amended"
    await store.run(add, "n")
    memo.amend("n", known, "stale")
    assert await memo.get("n") == "n"


@pytest.mark.part_alone
async def test_f52_failed_commit_drops_results_too(store: Store) -> None:
    memo = Memo(store, regions, most=10, without=())
    await memo.get("n")
    with pytest.raises(Exception, match="UNIQUE"):
        await store.run(add, "north")
    await memo.get("n")
    await until_idle()
    assert looks == ["n", "n"]


def test_hot_transactions_write_nothing_that_is_remembered() -> None:
    for module in {inspect.getmodule(transaction) for transaction in HOT - {note_use}}:
        assert module is not None
        source = inspect.getsource(module)
        written = re.findall(rf"(?:INTO|UPDATE|DELETE FROM) ({CATALOG})\b", source)
        assert written == [], module.__name__
