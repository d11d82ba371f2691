"""What hosts are to keep of warm pools, and what that is made from."""

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from controlplane.storage.engine.store import Database, Store
from controlplane.storage.tables.applications import Application, all_applications
from controlplane.storage.tables.tags import Tag
from controlplane.storage.tables.warm_pools import ALL_POOLS, WarmPool, pool_of


@dataclass(frozen=True, slots=True)
class WantedPool:
    """A pool, its application and the enabled tags of that, the newest first.

    `revision` grows with every change of the pool. What standbys are started with (`env`, `args`,
    `labels`) is there only for a pool that has a size.
    """

    pool: WarmPool
    revision: int
    application: Application
    tags: tuple[Tag, ...]

    @property
    def size(self) -> int:
        """How many standbys there are to be."""
        return self.pool.size if self.pool.enabled else 0


@dataclass(frozen=True, slots=True)
class OrderRow:
    """The newest order to a host about a pool; `spec` is the same for the same standbys."""

    pool: str
    agent: str
    revision: int
    size: int
    spec: str


@dataclass(frozen=True, slots=True)
class NewOrder:
    """An order to be written; `known` is the revision that the host is known to have."""

    pool: str
    agent: str
    size: int
    spec: str
    known: int = 0


class StandbyOrderStore:
    """Transactions on orders to keep standbys."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def wanted(self, known: Mapping[str, WantedPool]) -> list[WantedPool]:
        """Read the pools of accounts that were not removed.

        `known` are those that were read before, by id: what is large is read again only of a pool
        that was changed since.
        """
        found = await self._store.read_as_one(_wanted)
        whole = [await self._with_content(each, known.get(each.pool.id)) for each in found]
        return [each for each in whole if each is not None]

    async def _with_content(
        self, found: WantedPool, known: WantedPool | None
    ) -> WantedPool | None:
        """Add what the standbys of a pool are started with; None when it was just removed."""
        if not found.size:
            return found
        if known is not None and known.size and known.revision == found.revision:
            return replace(found, pool=known.pool)
        pools = await self._store.read(f"{ALL_POOLS} WHERE id=?", (found.pool.id,), pool_of)
        return replace(found, pool=pools[0]) if pools else None

    async def all(self) -> list[OrderRow]:
        """Read the newest orders."""
        sql = "SELECT pool, agent, revision, size, spec FROM standby_order"
        return await self._store.run(lambda db: [OrderRow(*row) for row in db.execute(sql)])

    async def order(self, orders: Iterable[NewOrder], now_ms: int) -> list[OrderRow]:
        """Write orders, each with a revision past all before it.

        That is the wall time where it is higher, so that it is past those which a database had
        that was lost, also of a host that is unreachable now.
        """

        def transaction(db: Database) -> list[OrderRow]:
            return [OrderRow(*_order(db, order, now_ms)) for order in orders]

        return await self._store.run(transaction)

    async def forget(self, done: Iterable[OrderRow]) -> None:
        """Forget orders that no host needs any more, unless there is a newer one."""

        def transaction(db: Database) -> None:
            for row in done:
                db.execute(
                    "DELETE FROM standby_order"
                    " WHERE pool=:pool AND agent=:agent AND revision=:revision",
                    {"pool": row.pool, "agent": row.agent, "revision": row.revision},
                )

        await self._store.run(transaction)


def _wanted(db: Database) -> list[WantedPool]:
    rows = db.execute(
        "SELECT account, application, location, size, enabled, claim_signal, id, revision"
        " FROM warm_pool WHERE account IN (SELECT name FROM account WHERE removed_ms IS NULL)"
        " ORDER BY account, application, location"
    )
    pools = [(_bare(row[:-1]), row[-1]) for row in rows]
    names = {(pool.account, pool.application) for pool, _ in pools}
    applications = all_applications(db, names)
    tags = _tags_of(db, names)
    return [
        WantedPool(pool, revision, applications[key], tuple(tags[key]))
        for pool, revision in pools
        if (key := (pool.account, pool.application)) in applications
    ]


def _bare(row: tuple[Any, ...]) -> WarmPool:
    account, application, location, size, enabled, claim_signal, pool_id = row
    place = (account, application, location)
    return WarmPool(*place, size, bool(enabled), claim_signal=claim_signal, id=pool_id)


def _tags_of(
    db: Database, names: Iterable[tuple[str, str]]
) -> Mapping[tuple[str, str], list[Tag]]:
    found: dict[tuple[str, str], list[Tag]] = defaultdict(list)
    rows = db.execute(
        "SELECT account, application, name, digest, image FROM tag WHERE enabled"
        " AND (account, application) IN"
        " (SELECT value->>0, value->>1 FROM json_each(?)) ORDER BY priority DESC",
        (json.dumps(sorted(names)),),
    )
    for account, application, *tag in rows:
        found[account, application].append(Tag(*tag))
    return found


def _order(db: Database, order: NewOrder, now_ms: int) -> tuple[str, str, int, int, str]:
    row: tuple[str, str, int, int, str] = db.execute(
        "INSERT INTO standby_order(pool, agent, revision, size, spec)"
        " VALUES (:pool, :agent, max(:now, :known + 1), :size, :spec)"
        " ON CONFLICT(pool, agent) DO UPDATE SET"
        " revision=max(revision + 1, excluded.revision), size=excluded.size, spec=excluded.spec"
        " RETURNING pool, agent, revision, size, spec",
        {"now": now_ms, **asdict(order)},
    ).fetchone()
    return row
