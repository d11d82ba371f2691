"""SQLite: connections, and the transactions of a batch."""

import os
import sqlite3
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import sqlite_utils

from controlplane.domain.errors import NewerStoreError, StoreError, TiltyardError
from controlplane.domain.events.event import Event
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.database import NO_VALUES, Values
from controlplane.storage.engine.dialect import SQLITE, Dialect
from controlplane.storage.engine.event_log import event_row, write_events
from controlplane.storage.engine.metrics import StoreMetrics
from controlplane.storage.engine.migrations import migrate
from controlplane.storage.engine.worker import Job
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

BUSY_TIMEOUT = 5.0  # Seconds to wait for the lock of another process, such as `init` or a backup

_PRAGMAS = (
    "journal_mode=WAL",
    "synchronous=FULL",
    "foreign_keys=ON",
    f"journal_size_limit={64 * 1024 * 1024}",
)

_SAVEPOINTS_IN_MEMORY = "PRAGMA temp_store=MEMORY"
"""SQLite copies pages that a savepoint may undo: by default to files in /var/tmp."""


class SqliteDatabase:
    """A connection to SQLite, and the changes and events of its open transaction."""

    dialect: Dialect = SQLITE

    def __init__(self, connection: sqlite3.Connection) -> None:
        self.connection = connection
        self.changes: list[Change] = []
        self.events: list[dict[str, Any]] = []

    def execute(self, sql: str, values: Values = NO_VALUES, /) -> sqlite3.Cursor:
        """Execute a statement."""
        return self.connection.execute(sql, values)

    def executemany(self, sql: str, rows: Iterable[Values], /) -> int:
        """Execute a statement once for each row of values; return how many rows it has written."""
        return self.connection.executemany(sql, rows).rowcount

    def changed(self, topic: Topic, *key: str) -> None:
        """Note what the transaction changes."""
        self.changes.append(Change(topic, key))

    def append(self, event: Event) -> None:
        """Keep an event until `write_events`."""
        self.events.append(event_row(event))

    def write_events(self) -> None:
        """Write the events of the transaction, as its last step before the COMMIT."""
        if self.events:
            write_events(self, self.events)
            self.events.clear()

    def take_changes(self) -> Sequence[Change]:
        """Return the noted changes, each once, and forget them."""
        taken = tuple(dict.fromkeys(self.changes))
        self.changes.clear()
        return taken

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


def opened(connect: Callable[[Path], SqliteDatabase], path: Path) -> SqliteDatabase:
    """Connect to a file.

    Raises:
        StoreError: The file cannot be used.
    """
    try:
        return connect(path)
    except (OSError, sqlite3.Error, StoreError) as error:
        kind = NewerStoreError if isinstance(error, NewerStoreError) else StoreError
        raise kind(f"cannot open {path}: {error}") from error


def connect_writer(path: Path) -> SqliteDatabase:
    """Open, check and migrate a database; create it if missing."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    # SQLite gives -wal and -shm the mode of the database: set it before the first byte.
    os.close(os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o600))
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT)
    try:
        for pragma in _PRAGMAS:
            connection.execute(f"PRAGMA {pragma}")
        _check_integrity(connection)
        migrate(sqlite_utils.Database(connection))
        connection.execute(_SAVEPOINTS_IN_MEMORY)
    except BaseException:
        connection.close()
        raise
    return SqliteDatabase(connection)


def connect_reader(path: Path) -> SqliteDatabase:
    """Open a database to read it."""
    connection = sqlite3.connect(path, isolation_level=None, timeout=BUSY_TIMEOUT)
    connection.execute("PRAGMA query_only=ON")
    return SqliteDatabase(connection)


def _check_integrity(connection: sqlite3.Connection) -> None:
    found = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(f"it is damaged: {found}")


def read_batch(db: SqliteDatabase, batch: list[Job]) -> Sequence[Change]:
    """Run reads in one snapshot. Never raises."""
    try:
        db.execute("BEGIN")
        for job in batch:
            with suppress(Exception):  # the job has it
                job.run(db)
        db.connection.commit()
    except sqlite3.Error as error:
        _fail(batch, error)
        db.connection.rollback()
    return ()


def commit_batch(
    db: SqliteDatabase, batch: list[Job], *, metrics: StoreMetrics
) -> Sequence[Change]:
    """Run transactions, commit them together and return what they changed. Never raises."""
    metrics.commit_size.observe(len(batch))
    try:
        with metrics.commit_seconds.time():
            db.execute("BEGIN IMMEDIATE")
            for job in batch:
                _run_in_savepoint(db, job)
            db.write_events()
            db.connection.commit()
    except Exception as error:  # every future gets it
        log.exception("cannot commit transactions", count=len(batch))
        metrics.commit_failures.inc()
        _fail(batch, error)
        db.connection.rollback()
        db.changes.clear()
        db.events.clear()
    return db.take_changes()


def _run_in_savepoint(db: SqliteDatabase, job: Job) -> None:
    changes = len(db.changes)
    events = len(db.events)
    db.execute("SAVEPOINT job")
    try:
        job.run(db)
    except Exception as error:
        if not db.connection.in_transaction:  # the failure ended the whole transaction
            raise
        db.execute("ROLLBACK TO job")
        del db.changes[changes:]
        del db.events[events:]
        if not isinstance(error, TiltyardError):  # it has a caller
            log.debug("transaction failed and was rolled back", exc_info=True)
    db.execute("RELEASE job")


def _fail(batch: list[Job], failure: BaseException) -> None:
    for job in batch:
        job.failure = failure
