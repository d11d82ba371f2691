"""Copies of the database for backups: taken during writes, and prepared for a restore.

All functions block. Each copy is a single file, without a write-ahead log.
"""

import importlib.metadata  # noqa: F401  # else sqlite_utils does, after root is dropped
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import sqlite_utils

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from controlplane.storage.engine.sqlite import BUSY_TIMEOUT, SqliteDatabase

NEWEST_SCHEMA = len(MIGRATIONS)


def copy_database(source: Path, copy: Path) -> None:
    """Copy what is committed now into a new file, and check the copy.

    All pages are copied in one read transaction: concurrent commits neither wait for it nor
    restart it.

    Raises:
        StoreError: There is no database, it is damaged, or a disk failed.
    """
    try:
        with closing(_open(source, "rw")) as original, closing(_open(copy, "rwc")) as copied:
            original.backup(copied)
            _check(copied)
            _leave_wal(copied)
    except sqlite3.Error as error:
        raise StoreError(f"cannot copy {source}: {error}") from error


def make_ready(copy: Path, mark: Callable[[Database], object]) -> None:
    """Check the database of a backup, migrate it and run a transaction that marks it as restored.

    Raises:
        StoreError: It is damaged, or of a newer program.
    """
    try:
        with closing(_open(copy, "rw")) as connection:
            if (schema := _check(connection)) > NEWEST_SCHEMA:
                raise StoreError(
                    f"the backup's schema {schema} is newer than {NEWEST_SCHEMA}: use the version"
                    " that made it, or a newer one"
                )
            opened = sqlite_utils.Database(connection)
            migrate(opened)
            with opened.atomic():
                db = SqliteDatabase(connection)
                mark(db)
                db.write_events()
            _leave_wal(connection)
    except sqlite3.Error as error:
        raise StoreError(f"the backup's database is damaged: {error}") from error


def _open(path: Path, mode: str) -> sqlite3.Connection:
    address = f"{path.absolute().as_uri()}?mode={mode}"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT)


def _leave_wal(connection: sqlite3.Connection) -> None:
    """Move everything into the main database file."""
    connection.execute("PRAGMA journal_mode=DELETE")


def _check(connection: sqlite3.Connection) -> int:
    """Check for damage; return the schema number."""
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(f"the database is damaged: {found}")
    if broken := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise StoreError(
            f"the database is damaged: a row of {broken[0]} refers to none of {broken[2]}"
        )
    schema = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if schema == 0:
        raise StoreError("the database is not one of a control plane")
    return schema
