"""A program with several writers to the store, which prints what was committed.

Its arguments are the database and a range of numbers. Each transaction is two rows of one number,
printed once committed. With `--normal` the store syncs as little as `synchronous=NORMAL`.
"""

import asyncio
import os
import sqlite3
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

from controlplane.domain.access.audit import ITSELF
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from tests.support.controlplane.events import Padded

WRITERS = 8
KIND = Padded.kind
PADDING = "x" * 500
PAGES = 50  # Pages in the write-ahead log at a checkpoint: few, so that there are many checkpoints


class Lax(sqlite3.Connection):
    """A connection that syncs less than it was ordered to."""

    def execute(self, sql: str, *values: Any) -> sqlite3.Cursor:
        return super().execute(sql.replace("synchronous=FULL", "synchronous=NORMAL"), *values)


def _insert(db: Database, number: int) -> None:
    for _ in range(2):
        db.append(Padded("", str(number), ITSELF, 0.0, padding=PADDING))


async def _write(store: Store, numbers: Iterator[int]) -> None:
    for number in numbers:
        await store.run(_insert, number)
        os.write(sys.stdout.fileno(), f"{number}\n".encode())


async def _main(path: Path, first: int, last: int) -> None:
    store = Store(path)
    await store.open()
    await store.run(lambda db: db.execute(f"PRAGMA wal_autocheckpoint={PAGES}"))
    numbers = iter(range(first, last))
    async with asyncio.TaskGroup() as group:
        for number in range(WRITERS):
            group.create_task(_write(store, numbers), name=f"writer {number}")
    os._exit(0)  # nothing is closed


if __name__ == "__main__":
    if "--normal" in sys.argv:
        sqlite3.connect = partial(sqlite3.connect, factory=Lax)  # type: ignore[assignment]
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
