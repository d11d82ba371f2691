"""Warm pools: what callers set. Who keeps the standbys comes later."""

from controlplane.clock import Clock
from controlplane.errors import NotFoundError
from controlplane.storage.account_store import Caller
from controlplane.storage.warm_pool_store import SetOutcome, WarmPool, WarmPoolStore


class WarmPools:
    """Use cases on warm pools.

    A pool belongs to an application in one of its regions. When the application is taken out of
    that region, the pool goes with it.
    """

    def __init__(self, store: WarmPoolStore, clock: Clock) -> None:
        self._store = store
        self._clock = clock

    async def set(self, caller: Caller, pool: WarmPool) -> None:
        """Make a pool of the caller's account, or replace it whole. Idempotent.

        Raises:
            NotFoundError: The account has no such application, or it is not assigned to the
                region.
        """
        match await self._store.set(pool, caller.actor, self._clock.now_ms()):
            case SetOutcome.NO_APPLICATION:
                raise NotFoundError("application", pool.application)
            case SetOutcome.NO_REGION:
                raise NotFoundError("region", pool.location)

    async def all_of(self, caller: Caller) -> list[WarmPool]:
        """Read all pools of the caller's account."""
        return await self._store.all_of(caller.account)

    async def remove(self, caller: Caller, application: str, location: str) -> None:
        """Remove a pool of the caller's account.

        Raises:
            NotFoundError: There is none.
        """
        now_ms = self._clock.now_ms()
        place = (caller.account, application, location)
        if not await self._store.remove(*place, caller.actor, now_ms):
            raise NotFoundError("warm pool", f"{application}/{location}")
