"""Removal of rows beyond bounds of number: an account's oldest ended sessions and events, and the
oldest confirmed stop orders.

Retention by time alone would let an account fill the disk as fast as it can write. Each account
loses its own oldest rows only. Stop orders are of hosts, and have one bound for all.
"""

import asyncio
from collections import Counter
from collections.abc import Collection

from controlplane.domain.errors import StoreError
from controlplane.domain.events.event import Retention
from controlplane.settings.model import Config
from controlplane.storage.engine.changes import Change, Topic
from controlplane.storage.engine.metrics import StoreMetrics
from controlplane.storage.engine.statements import PORTION
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts
from controlplane.storage.tables.accounting import event_retention
from controlplane.storage.tables.sessions import session_queries, session_rows, stop_orders
from tiltyard.runtime.clock import Clock, timeout
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 600.0  # Seconds from one round over all accounts to the next
CHANGES = 1000  # Changes of an account's sessions after which it is looked at before that
MAX_ENDED_BYTES = 64 * 1024 * 1024  # Labels, variables and ports of an account's ended sessions

MAX_CONFIRMED_STOPS = 1_000_000
"""Stop orders that are kept after their confirmation, some 150 MB.

If one account makes 150 a second, by 50 starts that each fail on three hosts, these are two hours:
longer than a host itself refuses what it was asked to stop.
"""


class Surplus:
    """Looks at all accounts from time to time, and at those with many changes at once."""

    def __init__(self, store: Store, config: Config, clock: Clock, metrics: StoreMetrics) -> None:
        self._store = store
        self._clock = clock
        self._most_sessions = config.max_ended_sessions
        self._most_events = config.max_audit_entries
        self._removed = metrics.removed_early
        self._changes = Counter[str]()
        self._busy = asyncio.Event()
        store.changes.subscribe({Topic.SESSION}, self._count)

    async def run(self) -> None:
        """Remove until cancelled."""
        while True:
            await self.remove_stops()
            await self.remove_surplus(await self._accounts())
            deadline = self._clock.monotonic() + INTERVAL
            while (left := deadline - self._clock.monotonic()) > 0:
                try:
                    async with timeout(left, self._clock):
                        await self._busy.wait()
                except TimeoutError:
                    break
                self._busy.clear()
                await self.remove_surplus(
                    [a for a, count in self._changes.items() if count >= CHANGES]
                )

    async def remove_surplus(self, names: Collection[str]) -> None:
        """Remove the surplus of these accounts; what fails is retried in a later round."""
        for name in names:
            # Changes during the removal, which it may not see, are counted. The removal's own
            # changes are counted too: after a removal of many rows the account is checked again.
            self._changes.pop(name, None)
            try:
                await self._remove_sessions(name)
                await self._remove_events(name)
            except StoreError as error:
                log.warning("cannot delete surplus data yet", account=name, error=str(error))
            except Exception:
                log.exception("cannot delete surplus data: internal error", account=name)

    async def remove_stops(self) -> None:
        """Remove the surplus of confirmed stop orders; what fails is retried in the next round."""
        try:
            find = stop_orders.surplus_before
            before = await self._store.read(find, MAX_CONFIRMED_STOPS)
            if before is None:
                return
            while removed := await self._store.run(stop_orders.remove_confirmed, before):
                self._removed.labels("stop_order").inc(removed)
        except StoreError as error:
            log.warning("cannot delete surplus stop orders yet", error=str(error))

    async def _accounts(self) -> list[str]:
        try:
            return await self._store.read(accounts.names)
        except StoreError as error:
            log.warning("cannot look for surplus data yet", error=str(error))
            return []

    async def _remove_sessions(self, account: str) -> None:
        find = session_queries.surplus_of
        surplus = await self._store.read(find, account, self._most_sessions, MAX_ENDED_BYTES)
        while surplus:
            oldest = surplus[-PORTION:]
            del surplus[-PORTION:]
            removed = await self._store.run(session_rows.remove_numbers, oldest)
            self._removed.labels("session").inc(removed)

    async def _remove_events(self, account: str) -> None:
        most = self._most_events
        if not await self._store.read(event_retention.has_surplus, account, most):
            return
        for retention in (Retention.SESSIONS, Retention.ACTS, Retention.PLAYERS):
            last = await self._store.read(event_retention.surplus_of, account, retention, most)
            if last is not None:
                await self._remove_until(account, retention, last)

    async def _remove_until(self, account: str, retention: Retention, last: int) -> None:
        position: int | None = 0
        while position is not None:
            removed, position = await self._store.run(
                event_retention.remove_until, account, retention, after=position, last=last
            )
            self._removed.labels("event").inc(removed)

    def _count(self, change: Change) -> None:
        if not change.key:  # the next round over all accounts finds what was missed
            return
        account = change.key[0]
        self._changes[account] += 1
        if self._changes[account] == CHANGES:
            self._busy.set()
