"""A thread that runs jobs on a connection to the database."""

import asyncio
import queue
import sqlite3
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from typing import Any, ParamSpec, Protocol, TypeVar

from controlplane.domain.errors import StoreError
from controlplane.storage.engine.changes import Change
from controlplane.storage.engine.database import Database, Transaction
from tiltyard.runtime.fair_queue import FairQueue
from tiltyard.runtime.metrics.instruments import Histogram

_T = TypeVar("_T")
_P = ParamSpec("_P")

_NOT_OPEN = "the database is not open"

_account: ContextVar[str] = ContextVar("account", default="")


def queue_as(account: str) -> None:
    """Queue further jobs of this task and its child tasks under an account, "" for none."""
    _account.set(account)


@contextmanager
def own_queue() -> Iterator[None]:
    """Queue the jobs of this block under no account, also in a task of one: they run in order."""
    before = _account.set("")
    try:
        yield
    finally:
        _account.reset(before)


class Closable(Database, Protocol):
    """A connection to the database."""

    def close(self) -> None:
        """Close the connection."""


C = TypeVar("C", bound=Closable)


@dataclass(slots=True, eq=False)
class Job:
    """A function of the database, and the future of its result."""

    function: Callable[[Database], Any]
    future: "asyncio.Future[Any]"
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
        """Set the result of the future, which may be cancelled."""
        future = self.future
        failure = self.failure
        if future.done():  # its task was cancelled
            return
        if isinstance(failure, sqlite3.Error):
            future.set_exception(StoreError(f"the database failed: {failure}"))
        elif failure is not None:
            future.set_exception(failure)
        else:
            future.set_result(self.outcome)


class Worker:
    """A thread with a fair queue of jobs; it runs at most `at_once` together."""

    def __init__(
        self,
        name: str,
        at_once: int,
        seconds: Histogram,
        publish: Callable[[Iterable[Change]], None],
    ) -> None:
        """`publish` is called with the changes of a batch before any of its jobs resolves."""
        self._name = name
        self._seconds = seconds  # From sending a job to its result
        self._at_once = at_once
        self._publish = publish
        self._sent: queue.SimpleQueue[tuple[str, Job] | None] = queue.SimpleQueue()
        self._waiting = FairQueue[Job]()  # used by the thread alone
        self._closing = False  # used by the thread alone
        self._accepts_jobs = False
        self._loop: asyncio.AbstractEventLoop
        self._closed: asyncio.Future[None]
        self._thread: threading.Thread | None = None

    def waiting(self) -> int:
        """Count the jobs that have not begun."""
        return self._sent.qsize() + len(self._waiting)

    async def open(
        self, connect: Callable[[], C], run_batch: Callable[[C, list[Job]], Sequence[Change]]
    ) -> None:
        """Connect, also again after the end. `run_batch` returns what the jobs have changed.

        `run_batch` never raises: if it does, the thread ends, and all jobs fail.

        Raises:
            StoreError: The database cannot be used.
        """
        self._loop = asyncio.get_running_loop()
        self._closed = self._loop.create_future()
        opened = self._loop.create_future()
        self._sent = queue.SimpleQueue()
        self._waiting = FairQueue()
        self._closing = False
        serve = partial(self._serve, connect, run_batch, opened)
        self._thread = threading.Thread(target=serve, name=self._name)
        self._thread.start()
        try:
            await asyncio.shield(opened)
        except StoreError:
            await self.close()
            raise

    async def close(self) -> None:
        """Finish what was sent, then close. Idempotent."""
        thread = self._thread
        if thread is None:
            return
        self._accepts_jobs = False
        self._sent.put(None)
        await asyncio.shield(self._closed)
        thread.join()  # at once: that was its last step
        self._thread = None

    def send(
        self, transaction: Transaction[_P, _T], *args: _P.args, **kwargs: _P.kwargs
    ) -> "asyncio.Future[_T]":
        """Queue a function; it runs even if its future is cancelled.

        Raises:
            StoreError: The database is not open, or is being closed.
        """
        if not self._accepts_jobs:
            raise StoreError(_NOT_OPEN)
        future: asyncio.Future[_T] = self._loop.create_future()
        job = Job(lambda db: transaction(db, *args, **kwargs), future)
        self._sent.put((_account.get(), job))
        return future

    def _serve(
        self,
        connect: Callable[[], C],
        run_batch: Callable[[C, list[Job]], Sequence[Change]],
        opened: "asyncio.Future[None]",
    ) -> None:
        try:
            db = connect()
        except StoreError as error:
            self._loop.call_soon_threadsafe(opened.set_exception, error)
            self._loop.call_soon_threadsafe(self._end, [])
            return
        self._loop.call_soon_threadsafe(self._begin, opened)
        batch: list[Job] = []
        try:
            while batch := self._next_batch():
                changes = run_batch(db, batch)
                # One wake-up of the loop per batch.
                self._loop.call_soon_threadsafe(self._resolve, batch, changes)
        finally:
            db.close()
            self._loop.call_soon_threadsafe(self._end, batch)

    def _resolve(self, batch: list[Job], changes: Sequence[Change]) -> None:
        self._publish(changes)
        for job in batch:
            self._seconds.observe(perf_counter() - job.sent)
            job.resolve()

    def _begin(self, opened: "asyncio.Future[None]") -> None:
        self._accepts_jobs = True
        opened.set_result(None)

    def _end(self, batch: list[Job]) -> None:
        """Fail the jobs that the thread has left, as its last step: none unless it has failed."""
        self._accepts_jobs = False
        left = [*batch, *self._waiting]
        while not self._sent.empty():
            sent = self._sent.get()
            if sent is not None:
                left.append(sent[1])
        for job in left:
            job.failure = StoreError(_NOT_OPEN)
            job.resolve()
        self._closed.set_result(None)

    def _next_batch(self) -> list[Job]:
        """Wait for the next jobs; empty when closed and drained."""
        while not self._sent.empty() or not (self._waiting or self._closing):
            sent = self._sent.get()
            if sent is None:
                self._closing = True
            else:
                account, job = sent
                self._waiting.put(account, job)
        batch: list[Job] = []
        while len(batch) < self._at_once:
            job_or_none = self._waiting.pop()
            if job_or_none is None:
                break
            batch.append(job_or_none)
        return batch
