"""The database: threads that own its connections, and whole transactions sent to them.

A transaction runs to its end even if the task that sent it is cancelled. Waiting transactions are
committed together with one `fsync`, each in its own savepoint, so that a failed one undoes only
itself. A future resolves after the COMMIT. Looks at a few rows and long reads have a thread and
a connection each. The queue of each thread is fair between accounts: one that sends hundreds of
transactions delays another by one.
"""

import asyncio
import json
import os
import queue
import sqlite3
import threading
from collections.abc import Callable, Collection
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any, Concatenate, ParamSpec, TypeVar

import sqlite_utils
from prometheus_client import Histogram

from controlplane.domain.errors import NewerStoreError, StoreError, TiltyardError
from controlplane.http.byte_room import HeldBytes, bound_body
from controlplane.metrics.store import StoreMetrics
from controlplane.storage.engine.changes import SessionKey, note_changes
from controlplane.storage.engine.migrations import migrate
from tiltyard.runtime.clock import to_ms
from tiltyard.runtime.fair_queue import FairQueue
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)
_T = TypeVar("_T")
_P = ParamSpec("_P")

Database = sqlite_utils.Database
Transaction = Callable[Concatenate[Database, _P], _T]
"""A function of the database and the arguments of `Store.run`."""

BUSY_TIMEOUT = 5.0  # Seconds to wait for the lock of another process, such as `init` or a backup

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"journal_size_limit={64 * 1024 * 1024}",
)

MAX_BATCH = 256  # Functions in one commit at most: bounds how long the first one waits

Listener = Callable[[Collection[Callable[..., Any]], Collection[SessionKey]], None]
"""Called with the transactions of a commit and the sessions that they changed."""

_Then = Callable[[Any], object] | None

_Do = Callable[[Database, "list[_Job]"], Collection[SessionKey]]
"""Runs a batch, never raises, and returns the sessions that were changed."""

_account: ContextVar[str] = ContextVar("account", default="")


def queue_as(account: str) -> None:
    """Queue further jobs of this task and its child tasks under an account, "" for none."""
    _account.set(account)


@dataclass(slots=True, eq=False)
class _Job:
    function: Callable[[Database], Any]
    future: "asyncio.Future[Any]"
    transaction: Callable[..., Any]  # What `function` calls with its arguments
    then: _Then  # Gets the outcome of a success
    body: HeldBytes | None = None  # Of the request that sent it, which may end before
    sent: float = field(default_factory=perf_counter)
    outcome: Any = None
    failure: BaseException | None = None

    def run(self, db: Database) -> None:
        """Keep the outcome; re-raise a failure to undo the savepoint."""
        try:
            self.outcome = self.function(db)
        except BaseException as error:
            self.failure = error
            raise

    def resolve(self) -> None:
        if self.body is not None:
            self.body.release()
        future = self.future
        failure = self.failure
        if failure is None and self.then is not None:
            future.get_loop().call_soon(self.then, self.outcome)
        if future.done():  # its task was cancelled
            return
        if isinstance(failure, sqlite3.Error):
            future.set_exception(StoreError(f"the database failed: {failure}"))
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(self.outcome)


class _Thread:
    """A thread with a fair queue of jobs; it runs at most `at_once` together."""

    def __init__(self, name: str, at_once: int, seconds: Histogram) -> None:
        self._name = name
        self._seconds = seconds  # From sending a job to its result
        self._at_once = at_once
        self._sent: queue.SimpleQueue[tuple[str, _Job] | None] = queue.SimpleQueue()
        self._waiting = FairQueue[_Job]()  # used by the thread alone
        self._closing = False
        self._loop: asyncio.AbstractEventLoop
        self._closed: asyncio.Future[None]
        self._thread: threading.Thread | None = None
        self.listeners: list[Listener] = []  # Called before any transaction of a batch resolves

    def waiting(self) -> int:
        """Count the jobs that have not begun."""
        return self._sent.qsize() + len(self._waiting)

    async def open(self, connect: Callable[[], Database], do: _Do) -> None:
        """Connect."""
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        opened = self._loop.create_future()
        serve = partial(self._serve, connect, do, opened)
        thread = threading.Thread(target=serve, name=self._name)
        thread.start()
        try:
            await asyncio.shield(opened)
        except StoreError:
            thread.join()  # at once: that was its last step
            raise
        self._thread = thread

    async def close(self) -> None:
        """Finish what was sent, then close. Idempotent."""
        if self._thread is None:
            return
        thread = self._thread
        self._thread = None
        self._sent.put(None)
        await asyncio.shield(self._closed)
        thread.join()  # at once: that was its last step

    def send(
        self, then: _Then, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> "asyncio.Future[_T]":
        """Queue a function; it runs even if its future is cancelled."""
        if self._thread is None:
            raise StoreError("the database is not open")
        future: asyncio.Future[_T] = self._loop.create_future()
        body = bound_body()
        if body is not None:
            body.keep()
        job = _Job(lambda db: transaction(db, *args, **kwargs), future, transaction, then, body)
        self._sent.put((_account.get(), job))
        return future

    def _serve(
        self, connect: Callable[[], Database], do: _Do, opened: "asyncio.Future[None]"
    ) -> None:
        try:
            db = connect()
        except StoreError as error:
            self._loop.call_soon_threadsafe(opened.set_exception, error)
            return
        self._loop.call_soon_threadsafe(opened.set_result, None)
        try:
            while batch := self._next_batch():
                changed = do(db, batch)
                # One wake-up of the loop per batch.
                self._loop.call_soon_threadsafe(self._resolve, batch, changed)
        finally:
            db.close()
            self._loop.call_soon_threadsafe(self._closed.set_result, None)

    def _resolve(self, batch: list[_Job], changed: Collection[SessionKey]) -> None:
        transactions = {job.transaction for job in batch}
        for listener in self.listeners:
            listener(transactions, changed)
        for job in batch:
            self._seconds.observe(perf_counter() - job.sent)
            job.resolve()

    def _next_batch(self) -> list[_Job]:
        """Wait for the next jobs; empty when closed and drained."""
        while not self._sent.empty() or not (self._waiting or self._closing):
            match self._sent.get():
                case None:
                    self._closing = True
                case account, job:
                    self._waiting.put(account, job)
        return list(islice(iter(self._waiting.pop, None), self._at_once))


class Store:
    """Runs transactions and reads on threads."""

    def __init__(self, path: Path, metrics: StoreMetrics | None = None) -> None:
        self._path = path
        self._metrics = metrics = metrics or StoreMetrics()
        self._writer = _Thread("store", MAX_BATCH, metrics.transaction_seconds)
        self._looker = _Thread("store looks", MAX_BATCH, metrics.look_seconds)
        self._reader = _Thread("store reader", 1, metrics.read_seconds)
        metrics.follow(path, self._writer.waiting)

    def listen(self, listener: Listener) -> None:
        """Call after each commit, before the tasks that sent its transactions go on."""
        self._writer.listeners.append(listener)

    async def open(self) -> None:
        """Open, check and migrate the database; create it if missing.

        Raises:
            StoreError: The file cannot be used.
        """
        changed = set[SessionKey]()
        commit = partial(_commit, metrics=self._metrics, changed=changed)
        connect = partial(_connect, changed=changed)
        await self._writer.open(partial(_open, connect, self._path), commit)
        try:
            for thread in (self._looker, self._reader):
                await thread.open(partial(_open, _connect_reader, self._path), _look)
        except StoreError:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what was sent, then close. Idempotent."""
        for thread in (self._writer, self._looker, self._reader):
            await thread.close()

    async def run(
        self, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run one transaction and return its result, after the COMMIT.

        An exception undoes the transaction and is raised here.

        Raises:
            StoreError: The database failed, or is not open; nothing was changed.
        """
        return await self.run_then(None, transaction, *args, **kwargs)

    async def run_then(
        self, then: _Then, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """As `run`; `then` gets the result, even if the calling task is cancelled."""
        return await self._writer.send(then, transaction, *args, **kwargs)

    def begin(
        self, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> "asyncio.Future[_T]":
        """As `run`, for a caller without a task."""
        return self._writer.send(None, transaction, *args, **kwargs)

    async def run_in_portions(
        self, transaction: Transaction[_P, int], *args: _P.args, **kwargs: _P.kwargs
    ) -> None:
        """Run a transaction until it returns 0; others run in between."""
        while await self.run(transaction, *args, **kwargs):
            pass

    async def look(self, at: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run SELECTs of a few rows in one snapshot, without waiting for transactions.

        They see every transaction that resolved before this call.

        Raises:
            StoreError: The database failed, or is not open.
        """
        return await self._looker.send(None, at, *args, **kwargs)

    async def read(self, at: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run long SELECTs as `look` does, delaying neither transactions nor looks."""
        return await self._reader.send(None, at, *args, **kwargs)


def _look(db: Database, batch: list[_Job]) -> Collection[SessionKey]:
    try:
        db.execute("BEGIN")  # one snapshot for all looks
        for job in batch:
            with suppress(Exception):  # the job has it
                job.run(db)
        db.commit()
    except sqlite3.Error as error:
        _fail(batch, error)
        db.rollback()
    return ()


def _fail(batch: list[_Job], failure: BaseException) -> None:
    for job in batch:
        job.failure = failure


def _commit(
    db: Database, batch: list[_Job], *, metrics: StoreMetrics, changed: set[SessionKey]
) -> Collection[SessionKey]:
    metrics.commit_size.observe(len(batch))
    try:
        with metrics.commit_seconds.time():
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                _run_in_savepoint(db, job)
            db.commit()
    except Exception as error:  # every future gets it
        log.exception("cannot commit transactions", count=len(batch))
        metrics.commit_failures.inc()
        _fail(batch, error)
        db.rollback()
    noted = frozenset(changed)
    changed.clear()
    return noted


def _run_in_savepoint(db: Database, job: _Job) -> None:
    db.execute("SAVEPOINT job")
    try:
        job.run(db)
    except Exception as error:
        if not db.conn.in_transaction:  # the failure ended the whole transaction
            raise
        db.execute("ROLLBACK TO job")
        if not isinstance(error, TiltyardError):  # it has a caller
            log.debug("transaction failed and was rolled back", exc_info=True)
    db.execute("RELEASE job")


def _open(connect: Callable[[Path], Database], path: Path) -> Database:
    try:
        return connect(path)
    except (OSError, sqlite3.Error, StoreError) as error:
        kind = NewerStoreError if isinstance(error, NewerStoreError) else StoreError
        raise kind(f"cannot open {path}: {error}") from error


def _connect(path: Path, changed: set[SessionKey]) -> Database:
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
        note_changes(db, changed)
    except BaseException:
        connection.close()
        raise
    return db


def _check_integrity(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(f"it is damaged: {found}")


def _connect_reader(path: Path) -> Database:
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only=ON")
    return Database(connection)


@dataclass(frozen=True, slots=True)
class Actor:
    """The author of a change: a token's id and client address, or a program's name."""

    name: str
    address: str = ""


ITSELF = Actor("controlplane")


def record_event(
    db: Database,
    kind: str,
    account: str,
    object_: str,
    /,
    *,
    actor: Actor,
    now: float,
    **data: Any,
) -> None:
    """Append an audit line within the transaction that makes the change."""
    db.execute(
        "INSERT INTO event(time_ms, kind, account, actor, address, object, data)"
        " VALUES (:time, :kind, :account, :actor, :address, :object, :data)",
        {
            "time": to_ms(now),
            "kind": kind,
            "account": account,
            "actor": actor.name,
            "address": actor.address,
            "object": object_,
            "data": json.dumps(data),
        },
    )
