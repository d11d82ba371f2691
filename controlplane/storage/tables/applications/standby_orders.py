"""Input of the standby orders to hosts: warm pools with their applications and tags."""

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from controlplane.domain.applications.tags import Tag
from controlplane.domain.applications.warm_pools import WantedPool, WarmPool
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.applications.applications import pooled_applications
from controlplane.storage.tables.applications.warm_pools import ALL_POOLS, pool_of


async def wanted(store: Store, known: Mapping[str, WantedPool]) -> list[WantedPool]:
    """Read the pools of accounts that were not removed.

    `known`: pools read before, by id. Large fields are read again only of changed pools.
    """
    found = await store.read(_wanted)
    whole = [await _with_content(store, each, known.get(each.pool.id)) for each in found]
    return [each for each in whole if each is not None]


async def _with_content(
    store: Store, found: WantedPool, known: WantedPool | None
) -> WantedPool | None:
    """Add the start parameters of standbys; None if the pool was just removed."""
    if not found.size:
        return found
    if known is not None and known.size and known.revision == found.revision:
        return replace(found, pool=known.pool)
    pool = await store.read(_pool, found.pool.id)
    return replace(found, pool=pool) if pool else None


def _wanted(db: Database) -> list[WantedPool]:
    rows = db.execute(
        "SELECT account, application, location, size, enabled, claim_signal, id, revision"
        " FROM warm_pool WHERE account IN (SELECT name FROM account WHERE removed_ms IS NULL)"
        " ORDER BY account, application, location"
    )
    pools = [
        (WarmPool(account, name, place, size, bool(on), claim_signal=signal, id=pool), revision)
        for account, name, place, size, on, signal, pool, revision in rows
    ]
    applications = pooled_applications(db)
    tags = _pooled_tags(db)
    wanted = []
    for pool, revision in pools:
        key = (pool.account, pool.application)
        if key in applications:
            wanted.append(WantedPool(pool, revision, applications[key], tuple(tags[key])))
    return wanted


def _pool(db: Database, pool_id: str) -> WarmPool | None:
    row = db.execute(f"{ALL_POOLS} WHERE id=:id", {"id": pool_id}).fetchone()
    return pool_of(row) if row else None


def _pooled_tags(db: Database) -> Mapping[tuple[str, str], list[Tag]]:
    """Read the enabled tags of applications that have warm pools, newest first."""
    found: dict[tuple[str, str], list[Tag]] = defaultdict(list)
    rows = db.execute(
        "SELECT account, application, name, digest, image FROM tag"
        " WHERE (account, application) IN (SELECT account, application FROM warm_pool)"
        " ORDER BY priority DESC"
    )
    for account, application, *tag in rows:
        found[account, application].append(Tag(*tag))
    return found
