"""The database: whole transactions and reads, sent to the threads that own its connections.

A transaction runs to its end even if the task that sent it is cancelled. Waiting transactions are
committed together with one `fsync`, each in its own savepoint, so that a failed one undoes only
itself. A future resolves after the COMMIT. Looks at a few rows and long reads have a thread and
a connection each. The queue of each thread is fair between accounts: one that sends hundreds of
transactions delays another by one. Between accounts there is no order: what is sent later can run
earlier.
"""

from functools import partial
from pathlib import Path
from typing import ParamSpec, TypeVar

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.changes import Changes
from controlplane.storage.engine.database import Transaction
from controlplane.storage.engine.metrics import StoreMetrics
from controlplane.storage.engine.sqlite import (
    commit_batch,
    connect_reader,
    connect_writer,
    opened,
    read_batch,
)
from controlplane.storage.engine.worker import Worker
from tiltyard.runtime.clock import Clock

_T = TypeVar("_T")
_P = ParamSpec("_P")

MAX_BATCH = 256  # Functions in one commit at most: bounds how long the first one waits

REST = 2.0  # Pause after a portion of many rows, as a multiple of its duration


class Store:
    """Runs transactions and reads on threads; `changes` publishes what transactions change."""

    def __init__(self, path: Path, metrics: StoreMetrics | None = None) -> None:
        self._path = path
        self._metrics = metrics = metrics or StoreMetrics()
        self.changes = Changes()
        publish = self.changes.publish
        self._writer = Worker("store", MAX_BATCH, metrics.transaction_seconds, publish)
        self._looker = Worker("store looks", MAX_BATCH, metrics.look_seconds, publish)
        self._reader = Worker("store reader", 1, metrics.read_seconds, publish)
        metrics.follow(path, self._writer.waiting)

    async def open(self) -> None:
        """Open, check and migrate the database; create it if missing.

        Raises:
            StoreError: The file cannot be used.
        """
        commit = partial(commit_batch, metrics=self._metrics)
        await self._writer.open(partial(opened, connect_writer, self._path), commit)
        try:
            for worker in (self._looker, self._reader):
                await worker.open(partial(opened, connect_reader, self._path), read_batch)
        except StoreError:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what was sent, then close. Idempotent."""
        for worker in (self._writer, self._looker, self._reader):
            await worker.close()

    async def run(
        self, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> _T:
        """Run one transaction and return its result, after the COMMIT.

        An exception undoes the transaction and is raised here.

        Raises:
            StoreError: The database failed, or is not open; nothing was changed.
        """
        return await self._writer.send(transaction, *args, **kwargs)

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
        return await self._looker.send(at, *args, **kwargs)

    async def read(self, at: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        """Run long SELECTs as `look` does, delaying neither transactions nor looks."""
        return await self._reader.send(at, *args, **kwargs)


async def rest(clock: Clock, began: float) -> None:
    """Leave most of the writer's time to others after a portion that began at a monotonic time."""
    await clock.sleep(REST * (clock.monotonic() - began))
