"""Use cases of operators on the sessions of all accounts."""

from dataclasses import dataclass, replace

from controlplane.sessions.sessions import Sessions, ShownSession
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.session_lists import PageFilter, find_page


@dataclass(frozen=True, slots=True)
class ShownPage:
    """Sessions, newest first; `next_before` is None when there are no more."""

    sessions: list[ShownSession]
    next_before: int | None


@dataclass(frozen=True, slots=True)
class AllSessions:
    """Use cases on sessions of any account, for authorized callers."""

    store: Store
    sessions: Sessions

    async def page(self, wanted: PageFilter) -> ShownPage:
        """Read a page of sessions."""
        found, next_before = await self.store.read(find_page, wanted)
        return ShownPage([self.sessions.shown(session) for session in found], next_before)

    async def stop(self, caller: Caller, account: str, session_id: str) -> None:
        """Stop a session as its account; the audit names the operator."""
        await self.sessions.stop(replace(caller, account=account), session_id)
