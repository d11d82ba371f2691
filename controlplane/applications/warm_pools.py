"""Warm pools as callers set them; `fleet/standby_pools.py` maintains them."""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass

from controlplane.domain.access.callers import Caller
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.fleet.standby_pools import StandbyPools
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications import warm_pools
from tiltyard.runtime.clock import Clock


@dataclass(frozen=True, slots=True)
class WarmPools:
    """Use cases on warm pools, each of an application in one of its regions."""

    store: Store
    standbys: StandbyPools
    clock: Clock

    async def set_pool(self, caller: Caller, pool: WarmPool) -> None:
        """Create or replace a pool of the caller's account. Idempotent."""
        await self.store.run(warm_pools.put, pool, caller.actor, self.clock.time())

    async def pools_of(self, caller: Caller) -> AsyncGenerator[list[tuple[WarmPool, int]], None]:
        """Read all pools of the caller's account, with their claimable standbys, in portions."""
        async with aclosing(warm_pools.all_of(self.store, caller.account)) as portions:
            async for pools in portions:
                yield [(pool, self.standbys.ready(pool.id)) for pool in pools]

    async def remove_pool(self, caller: Caller, application: str, location: str) -> None:
        """Remove a pool of the caller's account."""
        place = (caller.account, application, location)
        await self.store.run(warm_pools.remove, place, caller.actor, self.clock.time())
