"""Warm pools: what callers set. `fleet/standby_pools.py` has the hosts keep them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from controlplane.fleet.standby_pools import StandbyPools
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import warm_pools
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class ShownPool:
    """A pool, and how many of its standbys can be claimed now."""

    pool: WarmPool
    ready: int


@dataclass(frozen=True, slots=True)
class WarmPools:
    """Use cases on warm pools.

    A pool belongs to an application in one of its regions. When the application is taken out of
    that region, the pool goes with it.
    """

    store: Store
    standbys: StandbyPools
    clock: Clock

    async def set(self, caller: Caller, pool: WarmPool) -> None:
        """Make a pool of the caller's account, or replace it whole. Idempotent.

        Raises:
            NotFoundError: The account has no such application, or it is not assigned to the
                region.
            ConflictError: The account has too many pools.
            QuotaExceededError: The pool does not fit in the quota of cores or memory.
        """
        now = self.clock.time()
        await self.store.run_then(self._changed, warm_pools.put, pool, caller.actor, now)

    async def all_of(self, caller: Caller) -> AsyncGenerator[list[ShownPool], None]:
        """Read all pools of the caller's account, a few at a time."""
        async with aclosing(warm_pools.all_of(self.store, caller.account)) as portions:
            async for pools in portions:
                yield [ShownPool(pool, self.standbys.ready(pool.id)) for pool in pools]

    async def remove(self, caller: Caller, application: str, location: str) -> None:
        """Remove a pool of the caller's account.

        Raises:
            NotFoundError: There is none.
        """
        now = self.clock.time()
        place = (caller.account, application, location)
        await self.store.run_then(self._changed, warm_pools.remove, place, caller.actor, now)

    def _changed(self, _: None) -> None:
        self.standbys.look()
