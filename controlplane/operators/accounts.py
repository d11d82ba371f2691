"""Use cases of operators on accounts."""

from dataclasses import dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.access.quotas import Quota
from controlplane.domain.access.tokens import NewToken, mint
from controlplane.domain.errors import ConflictError
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.access import accounts
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class AccountAdmin:
    """Use cases on accounts, for authorized callers."""

    store: Store
    clock: Clock

    async def create_account(self, caller: Caller, name: str, quota: Quota) -> NewToken:
        """Create an account and return its first token, whose text is not stored.

        Remains of a removed account of the same name are deleted first.

        Raises:
            ConflictError: An account of that name exists.
        """
        token = mint()
        now = self.clock.time()
        await self.store.run_in_portions(accounts.remove_portion, name)
        is_new = await self.store.run(
            accounts.create_account, name, token, actor=caller.actor, now=now, quota=quota
        )
        if not is_new:
            raise ConflictError("an account of that name exists already")
        return token

    async def replace_quota(self, caller: Caller, name: str, quota: Quota) -> None:
        """Replace the quota of an account; existing usage stays."""
        await self.store.run(
            accounts.replace_quota, name, quota, actor=caller.actor, now=self.clock.time()
        )

    async def remove_account(self, caller: Caller, name: str) -> None:
        """Remove an account and all it owns; its tokens end at once.

        The rest is deleted in portions between other writes; `Upkeep` finishes after a crash.
        """
        await self.store.run(accounts.remove, name, caller.actor, self.clock.time())
        await self.store.run_in_portions(accounts.remove_portion, name)
