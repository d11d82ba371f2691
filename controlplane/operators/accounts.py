"""Accounts as operators make, limit and remove them."""

from collections.abc import Callable, Collection
from dataclasses import KW_ONLY, dataclass

from controlplane.catalog.open_streams import OpenStreams
from controlplane.domain.errors import ConflictError
from controlplane.domain.quotas import Quota
from controlplane.domain.tokens import NewToken, mint
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import accounts
from controlplane.storage.tables.accounts import Account, Caller
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class AccountAdmin:
    """Use cases on whole accounts; the API has checked that the caller may.

    `removed` is called when an account is gone with its warm pools.
    """

    store: Store
    streams: OpenStreams
    clock: Clock
    _: KW_ONLY
    removed: Callable[[], object]

    async def all(self) -> list[Account]:
        """Read all accounts with what they may hold and what they do."""
        return await self.store.read(accounts.find)

    async def create(self, caller: Caller, name: str, quota: Quota) -> NewToken:
        """Make an account and return its first token, whose text is stored nowhere.

        What is left of a removed account of the name goes first.

        Raises:
            ConflictError: There is an account of that name.
        """
        token, now = mint(), self.clock.time()
        await self.store.run_in_portions(accounts.remove_portion, name)
        create = accounts.create_account
        if not await self.store.run(create, name, token, caller.actor, now, quota):
            raise ConflictError("an account of that name exists already")
        return token

    async def replace_quota(self, caller: Caller, name: str, quota: Quota) -> None:
        """Set what an account may hold; what it holds already stays.

        Raises:
            NotFoundError: There is no such account.
        """
        await self.store.run(accounts.replace_quota, name, quota, caller.actor, self.clock.time())

    async def remove(self, caller: Caller, name: str) -> None:
        """Remove an account with all that is its own; its tokens end at once.

        The rest goes in portions, so that others come in between; `Upkeep` finishes what breaks
        off.

        Raises:
            NotFoundError: There is no such account.
            ConflictError: A session of it lives.
        """
        now = self.clock.time()
        await self.store.run_then(self._end_streams, accounts.remove, name, caller.actor, now)
        await self.store.run_in_portions(accounts.remove_portion, name)

    def _end_streams(self, token_ids: Collection[str]) -> None:
        self.streams.end_of(token_ids)
        self.removed()
