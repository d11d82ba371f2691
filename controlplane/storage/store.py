"""The database: one thread that owns the connection, and whole transactions sent to it.

A transaction is a function of the database. It is run to its end even when the task that sent it
is cancelled, so no cancellation can leave a transaction open. Functions that wait at the same time
are committed together, each in a savepoint of its own: one `fsync` for all of them, and a function
that fails undoes only itself. A future resolves after the COMMIT. What reads much has a thread and
a connection of its own, which the write-ahead log lets read while others write.

Only this module, `migrations.py` and the `*_store.py` modules know SQLite.
"""

import asyncio
import json
import logging
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from sqlite_utils import Database

from controlplane.errors import StoreError
from controlplane.storage.migrations import migrate

_log = logging.getLogger(__name__)
_T = TypeVar("_T")

BUSY_TIMEOUT = 5.0
"""Seconds to wait for another process, such as `init` or a backup, to let go of the database."""

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"journal_size_limit={64 * 1024 * 1024}",
)

MAX_BATCH = 256
"""Functions in one commit at most, so that the first of them does not wait for ever."""


@dataclass(frozen=True, slots=True)
class _Job:
    run: Callable[[Database], None]
    """Runs the transaction and keeps its outcome; raises what must undo the savepoint."""
    resolve: Callable[[BaseException | None], None]
    """Hands the outcome over, or the exception that the COMMIT failed with."""


class Store:
    """The thread and its queue."""

    def __init__(self, path: Path) -> None:
        """Name the file; nothing is opened before `open`."""
        self._path = path
        self._jobs: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._closed: Future[None] = Future()
        self._reading = ThreadPoolExecutor(1, "store reader")
        self._reader: Database | None = None

    async def open(self) -> None:
        """Open, check and migrate the database, making it when it is missing.

        Raises:
            StoreError: The file cannot be used.
        """
        opened: Future[None] = Future()
        thread = threading.Thread(target=self._serve, args=(opened,), name="store")
        thread.start()
        try:
            await asyncio.wrap_future(opened)
        except StoreError:
            thread.join()  # at once: that was its last step
            raise
        self._thread = thread
        loop = asyncio.get_running_loop()
        try:
            self._reader = await loop.run_in_executor(self._reading, _connect_reader, self._path)
        except (OSError, sqlite3.Error) as error:
            await self.close()
            raise StoreError(f"cannot open {self._path}: because {error}") from error

    async def close(self) -> None:
        """Finish what was sent, then close. Idempotent."""
        if self._thread is None:
            return
        thread, self._thread = self._thread, None
        self._jobs.put(None)
        await asyncio.shield(asyncio.wrap_future(self._closed))
        thread.join()  # at once: that was its last step
        if self._reader is not None:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(self._reading, self._reader.close)
        self._reading.shutdown()  # at once: that was its last job

    async def run(
        self, transaction: Callable[[Database], _T], then: Callable[[_T], None] | None = None
    ) -> _T:
        """Run one transaction and return what it returned, after the COMMIT.

        `then` is called with it even when the task that sent the transaction is cancelled.

        Raises:
            StoreError: The database failed, or is not open; nothing was changed.
        """
        if self._thread is None:
            raise StoreError("the database is not open")
        future: Future[_T] = Future()
        self._jobs.put(_job(transaction, future))
        committed = asyncio.wrap_future(future)
        if then is not None:
            committed.add_done_callback(partial(_go_on, then))
        return await asyncio.shield(committed)

    async def read(self, sql: str, values: Sequence[Any], make: Callable[[Any], _T]) -> list[_T]:
        """Run one SELECT beside the transactions, holding up none, and make something of each row.

        It sees what every transaction wrote that resolved before this call.

        Raises:
            StoreError: The database failed, or is not open.
        """
        reader = self._reader
        if self._thread is None or reader is None:
            raise StoreError("the database is not open")

        def query() -> list[_T]:
            return [make(row) for row in reader.execute(sql, values)]

        try:
            return await asyncio.get_running_loop().run_in_executor(self._reading, query)
        except sqlite3.Error as error:
            raise StoreError(f"the database failed: {error}") from error

    def _serve(self, opened: "Future[None]") -> None:
        try:
            db = _connect(self._path)
        except (OSError, sqlite3.Error, StoreError) as error:
            opened.set_exception(StoreError(f"cannot open {self._path}: because {error}"))
            return
        opened.set_result(None)
        try:
            while batch := self._next_batch():
                _commit(db, batch)
        finally:
            db.close()
            self._closed.set_result(None)

    def _next_batch(self) -> list[_Job]:
        batch: list[_Job] = []
        job = self._jobs.get()
        while job is not None:
            batch.append(job)
            if len(batch) == MAX_BATCH or self._jobs.empty():
                return batch
            job = self._jobs.get()
        if batch:
            self._jobs.put(None)
        return batch


def _go_on(then: Callable[[_T], None], committed: "asyncio.Future[_T]") -> None:
    if not committed.cancelled() and committed.exception() is None:
        then(committed.result())


def _job(transaction: Callable[[Database], _T], future: "Future[_T]") -> _Job:
    outcome: list[_T] = []
    failure: list[BaseException] = []

    def run(db: Database) -> None:
        try:
            outcome.append(transaction(db))
        except BaseException as error:
            failure.append(error)
            raise

    def resolve(commit_failure: BaseException | None) -> None:
        error = commit_failure or (failure[0] if failure else None)
        if error is None:
            future.set_result(outcome[0])
        elif isinstance(error, sqlite3.Error):
            future.set_exception(StoreError(f"the database failed: {error}"))
        else:
            future.set_exception(error)

    return _Job(run, resolve)


def _commit(db: Database, batch: list[_Job]) -> None:
    failure: BaseException | None = None
    try:
        db.execute("BEGIN IMMEDIATE")
        for job in batch:
            _run_in_savepoint(db, job)
        db.commit()
    except Exception as error:  # noqa: BLE001  # every future must learn of it
        _log.exception("cannot commit %d transactions", len(batch))
        failure = error
        db.rollback()
    for job in batch:
        job.resolve(failure)


def _run_in_savepoint(db: Database, job: _Job) -> None:
    try:
        with db.atomic():
            job.run(db)
    except Exception:
        if not db.conn.in_transaction:  # the failure ended the whole transaction
            raise
        _log.debug("a transaction failed and was undone", exc_info=True)


def _connect(path: Path) -> Database:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives -wal and -shm the mode of the database: set it before the first byte.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT)
    try:
        db = Database(connection)
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        _check_integrity(connection)
        migrate(db)
    except BaseException:
        connection.close()
        raise
    return db


def _connect_reader(path: Path) -> Database:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only=ON")
    return Database(connection)


def _check_integrity(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(f"it is damaged: {found}")


@dataclass(frozen=True, slots=True)
class Actor:
    """Who makes a change: a token's id, and the address that its request came from.

    A part of the product is named by itself or by its agent, and comes from nowhere.
    """

    name: str
    address: str = ""


ITSELF = Actor("controlplane")


@dataclass(frozen=True, slots=True)
class Event:
    """One line of the audit: who did what to what."""

    time_ms: int
    kind: str
    account: str
    actor: Actor
    object: str


def record_event(db: Database, event: Event, data: Mapping[str, Any] | None = None) -> None:
    """Append to the audit, within the transaction that makes the change."""
    db.execute(
        "INSERT INTO event(time_ms, kind, account, actor, address, object, data)"
        " VALUES (?,?,?,?,?,?,?)",
        (
            event.time_ms,
            event.kind,
            event.account,
            event.actor.name,
            event.actor.address,
            event.object,
            json.dumps(data or {}),
        ),
    )
