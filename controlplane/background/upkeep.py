"""What is forgotten: ended sessions, ended tokens, old lines of the audit, and what is left of
accounts whose removal broke off. Once an hour.
"""

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from controlplane.domain.errors import StoreError
from controlplane.settings.model import Config
from controlplane.storage.tables.accounts import AccountAdminStore
from controlplane.storage.tables.audit import AuditStore
from controlplane.storage.tables.sessions import SessionStore
from controlplane.storage.tables.tokens import TokenStore
from tiltyard.runtime.clock import Clock, to_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 3600.0
"""Seconds from one round to the next."""

ENDED_TOKENS_KEPT = timedelta(days=7)
"""So long an operator sees a token that was revoked or has expired."""


class Upkeep:
    """Forgets what is old, each kind for itself: what fails is tried again in the next round."""

    def __init__(
        self,
        *,
        sessions: SessionStore,
        tokens: TokenStore,
        audit: AuditStore,
        accounts: AccountAdminStore,
        config: Config,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._deeds: dict[str, Callable[[float], Awaitable[Any]]] = {
            "ended sessions": lambda before: sessions.forget_ended(to_ms(before)),
            "ended tokens": tokens.forget_ended,
            "the audit": audit.forget,
            "removed accounts": accounts.finish_removals,
        }
        self._kept = {
            "ended sessions": timedelta(days=config.ended_retention_days),
            "ended tokens": ENDED_TOKENS_KEPT,
            "the audit": timedelta(days=config.audit_retention_days),
            "removed accounts": timedelta(0),
        }

    async def run(self) -> None:
        """Forget now and once an hour, until cancelled."""
        while True:
            await self.forget()
            await self._clock.sleep(INTERVAL)

    async def forget(self) -> None:
        """Forget what is old now."""
        now = self._clock.time()
        for what, forget in self._deeds.items():
            try:
                await forget(now - self._kept[what].total_seconds())
            except StoreError as error:
                log.warning("cannot forget what is old yet", kind=what, error=str(error))
