"""Orders for warm pools, kept on the disk: `pools/<pool id>.json`.

So a restart of the agent changes nothing, and an order that was overtaken is refused. Of pools
that were taken away the newest REMOVED_KEPT are remembered, for orders that come late.
"""

from pathlib import Path

from pydantic import TypeAdapter

from agent.domain.errors import StaleRevisionError
from agent.domain.pools import WarmPool, taken
from agent.state.record import Records
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

POOLS = TypeAdapter(WarmPool)
REMOVED_KEPT = 50


class PoolFiles:
    """The pools of one host, in memory and on the disk."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._pools: dict[str, WarmPool] = {}

    @property
    def all(self) -> tuple[WarmPool, ...]:
        """All pools by id, those taken away of late included."""
        return tuple(self._pools[each] for each in sorted(self._pools))

    def find(self, pool: str) -> WarmPool | None:
        """What holds for a pool; None for one that is not known."""
        return self._pools.get(pool)

    async def load(self) -> None:
        """Load the orders to an earlier run of the agent."""
        self._pools = await self._records.run(_load, self._records.pools_dir)

    async def set(self, order: WarmPool) -> bool:
        """Take an order, durably; False when it is the one that holds.

        Raises:
            StaleRevisionError: The order that holds is newer.
            InvalidArgumentError: No standby of it could ever be of use.
            DiskFullError: It cannot be written.
        """
        before = self._pools.get(order.pool)
        if before is not None and order.revision < before.revision:
            raise StaleRevisionError(order.revision, before.revision)
        if before is not None and order.revision == before.revision:
            return False
        after = taken(order, before)
        await self._records.write(self._path(order.pool), POOLS.dump_json(after))
        self._pools[order.pool] = after
        await self._remove_old()
        return True

    async def _remove_old(self) -> None:
        removed = [each for each in self._pools.values() if not each.size]
        removed.sort(key=lambda each: each.revision)
        old = [each.pool for each in removed[:-REMOVED_KEPT]]
        for pool in old:
            del self._pools[pool]
        await self._records.remove(map(self._path, old))

    def _path(self, pool: str) -> Path:
        return self._records.pools_dir / f"{pool}.json"


def _load(folder: Path) -> dict[str, WarmPool]:
    pools = {}
    for path in folder.glob("*.json"):
        try:
            pool = POOLS.validate_json(path.read_bytes())
        except (OSError, ValueError) as error:
            log.error(  # noqa: TRY400 - the text says it all
                "cannot read a warm pool: it is not kept", path=str(path), error=str(error)
            )
        else:
            pools[pool.pool] = pool
    return pools
