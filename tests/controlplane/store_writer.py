"""A program that writes to the store, many at one time, and tells what was committed.

Its arguments are the database, the first number and the one to end before. Each transaction is two
rows of one number; once it is committed its number is a line of stdout. With `--normal` the store
syncs as little as SQLite's `synchronous=NORMAL` does.
"""

import asyncio
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from sqlite_utils import Database

from controlplane.storage.engine import store as module
from controlplane.storage.engine.store import ITSELF, Store, record_event

WRITERS = 8
KIND = "test.number"
PADDING = "x" * 500
PAGES = 50
"""In the write-ahead log when it is taken into the database: often, so that this is met, too."""


def _insert(db: Database, number: int) -> None:
    for _ in range(2):
        record_event(db, 0.0, KIND, "", ITSELF, str(number), padding=PADDING)


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
        less = (each.replace("FULL", "NORMAL") for each in module._PRAGMAS)
        module._PRAGMAS = tuple(less)  # type: ignore[assignment]  # as many as there were
    asyncio.run(_main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])))
