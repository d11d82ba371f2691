"""Accounts as operators make, limit and remove them."""

from collections.abc import Callable, Collection

from controlplane.catalog.open_streams import OpenStreams
from controlplane.domain.quotas import Quota
from controlplane.domain.tokens import NewToken, mint
from controlplane.storage.tables.accounts import Account, AccountAdminStore, Caller
from tiltyard.runtime.clock import Clock


class AccountAdmin:
    """Use cases on whole accounts; the API has checked that the caller may."""

    def __init__(
        self,
        store: AccountAdminStore,
        streams: OpenStreams,
        clock: Clock,
        *,
        removed: Callable[[], object],
    ) -> None:
        """Call `removed` when an account is gone with its warm pools."""
        self._removed = removed
        self._store = store
        self._streams = streams
        self._clock = clock

    async def all(self) -> list[Account]:
        """Read all accounts with what they may hold and what they do."""
        return await self._store.all()

    async def create(self, caller: Caller, name: str, quota: Quota) -> NewToken:
        """Make an account and return its first token, whose text is stored nowhere.

        Raises:
            ConflictError: There is an account of that name.
        """
        token, now = mint(), self._clock.time()
        await self._store.create(name, quota, token, caller.actor, now)
        return token

    async def replace_quota(self, caller: Caller, name: str, quota: Quota) -> None:
        """Set what an account may hold; what it holds already stays.

        Raises:
            NotFoundError: There is no such account.
        """
        await self._store.replace_quota(name, quota, caller.actor, self._clock.time())

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove an account with all that is its own; its tokens end at once.

        Raises:
            NotFoundError: There is no such account.
            ConflictError: A session of it lives.
        """
        now = self._clock.time()
        await self._store.remove(name, caller.actor, now, self._end_streams)

    def _end_streams(self, token_ids: Collection[str]) -> None:
        self._streams.end_of(token_ids)
        self._removed()
