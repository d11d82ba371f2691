"""Hooks between a use case and its database transaction."""

import asyncio
import copy
import sqlite3
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlite_utils

from controlplane.storage.engine.database import NO_VALUES, Database, Values
from controlplane.storage.engine.migrations import migrate
from controlplane.storage.engine.sqlite import SqliteDatabase
from controlplane.storage.engine.store import Store
from tests.support.controlplane.system import PATIENCE, System


def connection_of(db: Database) -> sqlite3.Connection:
    """The connection of a transaction, to trace its statements."""
    assert isinstance(db, SqliteDatabase)
    return db.connection


def run_sql(db: Database, sql: str, values: Values = NO_VALUES) -> list[Any]:
    """A transaction of one statement."""
    return db.execute(sql, values).fetchall()


def new_database() -> SqliteDatabase:
    """A database in memory, with the newest schema."""
    connection = sqlite3.connect(":memory:", isolation_level=None, check_same_thread=False)
    migrate(sqlite_utils.Database(connection))
    return SqliteDatabase(connection)


Go = Callable[[], Awaitable[Any]]  # Runs the transaction


def intercept(
    monkeypatch: pytest.MonkeyPatch, function: object, around: Callable[[Go], Awaitable[Any]]
) -> None:
    """Run `around` in place of each call of a transaction, look or read."""

    def patch(name: str) -> None:
        original = getattr(Store, name)

        async def intercepted(*args: Any, **more: Any) -> Any:
            go = partial(original, *args, **more)
            return await (around(go) if args[1] is function else go())

        monkeypatch.setattr(Store, name, intercepted)

    patch("run")
    patch("look")
    patch("read")


def intercept_answers(system: System, around: Callable[[Go], Awaitable[Any]]) -> None:
    """Run `around` in place of writing each host's answer to a start, until the next restart.

    Other reports of hosts are written as usual.
    """
    attempts = system.control_plane.starts._attempts
    reports = copy.copy(attempts._reports)
    write = reports.write

    async def intercepted(*args: Any) -> Any:
        return await around(partial(write, *args))

    reports.write = intercepted  # type: ignore[assignment, method-assign]
    attempts._reports = reports


def fail_once(error: Exception) -> Callable[[Go], Awaitable[Any]]:
    """Fail the first call."""
    errors = [error]

    async def around(go: Go) -> Any:
        if errors:
            raise errors.pop()
        return await go()

    return around


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[Store]:
    """A store of a database that no control plane uses, or one more beside its own."""
    store = Store(path)
    await store.open()
    try:
        yield store
    finally:
        await store.close()


@asynccontextmanager
async def blocked(
    send: Callable[[Callable[[Database], object]], Coroutine[Any, Any, object]],
    first: Callable[[Database], object] = lambda _: None,
) -> AsyncIterator[tuple[threading.Event, asyncio.Task[object]]]:
    """Block a thread of the store after `first`, until the end or until the event is set."""
    began = threading.Event()
    gate = threading.Event()

    def hold(db: Database) -> None:
        first(db)
        began.set()
        assert gate.wait(PATIENCE)

    holding = asyncio.create_task(send(hold))
    assert await asyncio.to_thread(began.wait, PATIENCE)
    try:
        yield gate, holding
    finally:
        gate.set()
        await holding
