"""Copies of the database: taken while it is written to, and made ready to be one. Blocks.

Each is one file, without a write-ahead log beside it.
"""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

from sqlite_utils import Database

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.migrations import MIGRATIONS, migrate
from controlplane.storage.engine.store import BUSY_TIMEOUT, ITSELF, Event, record_event

NEWEST_SCHEMA = len(MIGRATIONS)

_PORTION = 2048
"""Pages that are copied before a signal is looked for: some 8 MiB."""


def copy_database(source: Path, copy: Path) -> int:
    """Copy what is committed now into a new file, check the copy, and give its schema's number.

    One read transaction holds it still, whatever is written meanwhile: nobody waits for it, and
    it does not begin anew with every commit. The log grows by what is committed until it ends.

    Raises:
        StoreError: There is no database, or it or the disk of the copy fails.
    """
    try:
        with closing(_open(source)) as held, closing(_create(copy)) as made:
            held.execute("BEGIN")
            held.execute("SELECT 1 FROM sqlite_schema").fetchone()  # takes the snapshot
            held.backup(made, pages=_PORTION, progress=_look_for_signals)
            held.execute("ROLLBACK")
            _fold_log(made)
            schema = _check(made)
    except (OSError, sqlite3.Error, StoreError) as error:
        raise StoreError(f"cannot copy {source}: because {error}") from error
    return schema


def make_ready(copy: Path, schema: int, taken: str, now_ms: int) -> None:
    """Check a copy of a schema, bring it to the newest one, and note in its audit that it is back.

    `taken` says when it was made. Tokens of hosts that it has end: they may have been used since.
    Silence is counted anew: nobody knows here who was heard since.

    Raises:
        StoreError: It is damaged, of another schema, or of a newer program.
    """
    try:
        with closing(_open(copy)) as connection:
            _check_schema(_check(connection), schema)
            db = Database(connection)
            migrate(db)
            db.execute("BEGIN IMMEDIATE")
            db.execute("UPDATE enrolment_token SET expire_ms=min(expire_ms, ?)", (now_ms,))
            db.execute("UPDATE agent SET silent_ms=0")
            record_event(db, Event(now_ms, "database.restored", "", ITSELF, ""), {"of": taken})
            db.execute("COMMIT")
            _fold_log(connection)
    except (sqlite3.Error, StoreError) as error:
        raise StoreError(f"cannot use the backup's database: because {error}") from error


def _look_for_signals(_status: int, _left: int, _total: int) -> None:
    """Be Python for a moment."""


def _open(path: Path) -> sqlite3.Connection:
    """Open a database that is there; `isolation_level` leaves transactions to the caller."""
    address = f"{path.absolute().as_uri()}?mode=rw"
    return sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_TIMEOUT)


def _create(path: Path) -> sqlite3.Connection:
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_RDWR | os.O_CLOEXEC, 0o600))
    return _open(path)


def _fold_log(connection: sqlite3.Connection) -> None:
    """Have all of a database in its one file; whoever serves it has a log again."""
    connection.execute("PRAGMA journal_mode=DELETE")


def _check(connection: sqlite3.Connection) -> int:
    found = connection.execute("PRAGMA integrity_check(1)").fetchone()[0]
    if found != "ok":
        raise StoreError(f"it is damaged: {found}")
    if broken := connection.execute("PRAGMA foreign_key_check").fetchone():
        raise StoreError(f"it is damaged: a row of {broken[0]} belongs to none of {broken[2]}")
    return int(connection.execute("PRAGMA user_version").fetchone()[0])


def _check_schema(found: int, told: int) -> None:
    if found != told:
        raise StoreError(f"it has schema {found} instead of {told}")
