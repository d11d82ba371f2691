"""Hourly removal of old rows: sessions, tokens, events, attempts of webhooks,
partly removed accounts.

The first round also ends the time whose sessions the database has lost.
"""

from collections.abc import Awaitable

from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts, tokens
from controlplane.storage.tables.accounting import event_retention
from controlplane.storage.tables.sessions import lost_times, session_rows, stop_orders
from controlplane.storage.tables.webhooks import attempts as webhook_attempts
from controlplane.storage.tables.webhooks.attempts import FAILURE_SECONDS
from tiltyard.runtime.clock import Clock, is_trusted
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 3600.0  # Seconds from one round to the next

DAY = 86_400.0

ENDED_TOKENS_KEPT = 7 * DAY  # Seconds that operators see a revoked or expired token


class Upkeep:
    """Removes old rows of each kind; what fails is retried in the next round."""

    def __init__(self, store: Store, config: Config, clock: Clock) -> None:
        self._store = store
        self._clock = clock
        self._keep_events = config.audit_retention_days * DAY
        self._keep_ended = ended = config.ended_retention_days * DAY
        self._kinds = {
            "confirmed stops": (stop_orders.remove_confirmed, ended),
            "ended sessions": (session_rows.remove_ended, ended),
            "ended tokens": (tokens.remove_ended, ENDED_TOKENS_KEPT),
            "removed accounts": (accounts.remove_left, 0.0),
            "events of players": (
                event_retention.remove_of_players,
                config.player_events_retention_days * DAY,
            ),
            "failed attempts": (webhook_attempts.remove_old_failures, FAILURE_SECONDS),
            "removed webhooks": (webhook_attempts.remove_orphans, 0.0),
        }

    async def run(self) -> None:
        """Remove now and once an hour, until cancelled.

        After a boot it waits for a trusted clock: a wrong one would remove what is recent.
        """
        while not is_trusted(self._clock):
            await self._clock.sleep(1.0)
        while True:
            await self._end_lost_times()
            await self.forget()
            await self._clock.sleep(INTERVAL)

    async def _end_lost_times(self) -> None:
        try:
            await self._store.run(lost_times.end, self._clock.time(), self._keep_ended)
        except StoreError as error:
            log.warning("cannot end the adoption of sessions yet", error=str(error))

    async def forget(self) -> None:
        """Remove old rows in portions, so that other transactions run in between."""
        now = self._clock.time()
        for what, (remove, kept) in self._kinds.items():
            await self._try(what, self._store.run_in_portions(remove, now - kept))
        await self._try("events", self._forget_events(now))

    async def _forget_events(self, now: float) -> None:
        position: int | None = 0
        while position is not None:
            position = await self._store.run(
                event_retention.remove_old, position, before=now - self._keep_events, now=now
            )

    async def _try(self, what: str, removal: Awaitable[None]) -> None:
        try:
            await removal
        except StoreError as error:
            log.warning("cannot delete old data yet", kind=what, error=str(error))
        except Exception:
            log.exception("cannot delete old data: internal error", kind=what)
