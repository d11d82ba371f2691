"""The log of events for those who follow it.

A reader is a position. It reads the events after it, from memory if it is close behind, else from
the database, and waits for further ones:

    while True:
        batch = await log.read(wanted, after)
        ...
        after = await log.changed(wanted.account, batch.after)

So a slow reader holds no events. While there are readers, one task reads what a commit has
appended, once for all of them, and wakes those whose account has new events.
"""

import asyncio
from collections.abc import Collection, Iterable

from controlplane.domain.events.filters import EventFilter
from controlplane.domain.events.positions import Position
from controlplane.events.recent_events import RecentEvents
from controlplane.metrics.events import EventMetrics
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.event_log import position
from controlplane.storage.engine.follower import Follower
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.event_reading import (
    EventBatch,
    can_read_after,
    first_position,
    read_after,
    read_newer,
)
from tiltyard.runtime.clock import Clock, from_ms

LIMIT = 500  # Events of a read at most
WOKEN_AT_ONCE = 8  # Readers that run between two turns of other work on the event loop
FOLLOWED_FOR = 60.0  # Seconds that the log is followed in memory after its last reader has waited


class EventLog:
    """Follows the log for its readers; owns the task that reads what is new."""

    def __init__(self, store: Store, clock: Clock, metrics: EventMetrics | None = None) -> None:
        self._store = store
        self._clock = clock
        self._metrics = metrics or EventMetrics()
        self._recent: RecentEvents | None = None  # None while nobody follows the log
        self._reading = asyncio.Lock()  # Held while `_recent` is read from the database
        self._waiting: dict[str | None, set[asyncio.Future[None]]] = {}
        """Readers that wait, by account; None: those of all accounts."""
        self._last_wait = float("-inf")
        self.is_stopping = False
        self._follower = Follower("events", self._read_new, clock)
        store.changes.subscribe({Topic.EVENT}, self._follower.note)

    async def newest(self) -> Position:
        """Return the position after the newest event.

        Raises:
            StoreError: The database failed.
        """
        return await self._store.look(position)

    async def first(self, wanted: EventFilter) -> Position:
        """Return the position before the oldest event that a reader can get.

        Raises:
            StoreError: The database failed.
        """
        return await self._store.read(first_position, wanted)

    async def check(self, wanted: EventFilter, after: Position) -> None:
        """Check a position that a caller has chosen, before the first read after it.

        Memory has events that the database hides: those of a former account of the same name.

        Raises:
            EventsGoneError: As by `read`.
            StoreError: The database failed.
        """
        if not await self._store.look(can_read_after, wanted, after):
            await self._store.read(read_after, wanted, after, 1)

    async def read(self, wanted: EventFilter, after: Position, limit: int = LIMIT) -> EventBatch:
        """Read at most `limit` events after a position.

        Continue after the position of the batch, which may be empty although there are `more`.

        Raises:
            EventsGoneError: Events after the position may have been removed, or it is not of this
                log.
            StoreError: The database failed.
        """
        found = None if self._recent is None else self._recent.read(wanted, after, limit)
        if found is None:
            found = await self._store.read(read_after, wanted, after, limit)
        return found

    async def changed(
        self, account: str | None, after: Position, wait: float | None = None
    ) -> Position:
        """Wait for events of an account after a position, at most `wait` seconds.

        `account`: that of the reader's filter. Returns the position to continue after, with no
        event of the account in between. After `stop_waiting` it returns at once.

        Raises:
            StoreError: The database failed.
        """
        self._last_wait = self._clock.monotonic()
        recent = self._recent or await self._begin()
        last = recent.last_before_news(account, after)
        if last < recent.newest or self.is_stopping:
            return last
        loop = asyncio.get_running_loop()
        woken = loop.create_future()
        # Each event ends and begins the waits of its readers: `asyncio.timeout` costs more.
        timer = None if wait is None else loop.call_later(wait, _wake_one, woken)
        self._waiting.setdefault(account, set()).add(woken)
        try:
            await woken
        finally:
            if timer is not None:
                timer.cancel()
            self._forget(account, woken)
            self._last_wait = self._clock.monotonic()
        return after if self._recent is None else self._recent.last_before_news(account, last)

    def waiting(self, account: str | None) -> int:
        """Count the readers that wait for events of an account, None for those of all."""
        return len(self._waiting.get(account, ()))

    async def stop_waiting(self) -> None:
        """Wake all readers, which see that the log `is_stopping`."""
        self.is_stopping = True
        await self._wake(tuple(self._waiting))

    async def close(self) -> None:
        """Stop following the log. Idempotent."""
        await self._follower.close()

    async def _begin(self) -> RecentEvents:
        """Follow the log from now on."""
        async with self._reading:
            if self._recent is None:
                # A commit after this read is noted by the follower, which waits for the lock.
                self._recent = RecentEvents(await self._store.look(position))
            return self._recent

    async def _read_new(self, changes: Collection[Change]) -> None:
        """Read what was appended, and wake its readers; forget what may have been removed."""
        async with self._reading:
            if self._recent is not None and any(change.key for change in changes):
                self._recent = RecentEvents(self._recent.newest)
            while self._recent is not None:
                recent = self._recent
                if self._is_idle():
                    self._recent = None
                    return
                look = self._store.look
                newest, events = await look(read_newer, recent.newest.number, LIMIT)
                if newest.epoch != recent.newest.epoch:
                    self._recent = RecentEvents(newest)
                    await self._wake(tuple(self._waiting))
                    return
                if events:
                    age = self._clock.time() - from_ms(events[0].row.time_ms)
                    self._metrics.read_after.observe(max(0.0, age))
                    recent.add(events)
                    await self._wake({None, *(event.account for event in events)})
                if len(events) < LIMIT:
                    return

    def _is_idle(self) -> bool:
        since = self._clock.monotonic() - self._last_wait
        return not self._waiting and since > FOLLOWED_FOR

    async def _wake(self, accounts: Iterable[str | None]) -> None:
        """Wake the readers of some accounts, a portion at a time."""
        woken = [each for account in accounts for each in self._waiting.pop(account, ())]
        for first in range(0, len(woken), WOKEN_AT_ONCE):
            for reader in woken[first : first + WOKEN_AT_ONCE]:
                _wake_one(reader)
            await asyncio.sleep(0)

    def _forget(self, account: str | None, reader: "asyncio.Future[None]") -> None:
        waiting = self._waiting.get(account)
        if waiting is not None:
            waiting.discard(reader)
            if not waiting:
                del self._waiting[account]


def _wake_one(reader: "asyncio.Future[None]") -> None:
    if not reader.done():
        reader.set_result(None)
