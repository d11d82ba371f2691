"""What is forgotten: ended sessions, ended tokens, old lines of the audit, and what is left of
accounts whose removal broke off. Once an hour.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from controlplane.clock import Clock
from controlplane.config import Config
from controlplane.errors import StoreError
from controlplane.storage.account_admin_store import AccountAdminStore
from controlplane.storage.audit_store import AuditStore
from controlplane.storage.session_store import SessionStore
from controlplane.storage.token_store import TokenStore

_log = logging.getLogger(__name__)

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
        self._deeds: dict[str, tuple[timedelta, Callable[[int], Awaitable[Any]]]] = {
            "ended sessions": (
                timedelta(days=config.ended_retention_days),
                sessions.forget_ended,
            ),
            "ended tokens": (ENDED_TOKENS_KEPT, tokens.forget_ended),
            "the audit": (timedelta(days=config.audit_retention_days), audit.forget),
            "removed accounts": (timedelta(0), accounts.finish_removals),
        }

    async def run(self) -> None:
        """Forget now and once an hour, until cancelled."""
        while True:
            await self.forget()
            await asyncio.sleep(INTERVAL)

    async def forget(self) -> None:
        """Forget what is old now."""
        now_ms = self._clock.now_ms()
        for what, (kept, forget) in self._deeds.items():
            try:
                await forget(now_ms - kept // timedelta(milliseconds=1))
            except StoreError as error:
                _log.warning("cannot forget %s yet: because %s", what, error)
