"""Warm pools in the database: the desired state."""

import json
import uuid
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import asdict
from typing import Any

from controlplane.domain.access.audit import ITSELF, Actor
from controlplane.domain.applications.pool_fill import PoolFill
from controlplane.domain.applications.warm_pools import WarmPool
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.events.applications import (
    WarmPoolFull,
    WarmPoolRemoved,
    WarmPoolSet,
    WarmPoolShort,
)
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.accounting.quota_use import bounded_pools
from controlplane.storage.tables.applications.application_regions import IN_REGION

MAX_POOLS = 1000  # Per account: all are planned, and counted for quotas
PORTION = 5  # Pools read at a time: each may have 192 KiB of env, args and labels

_COLUMNS = "account, application, location, size, enabled, env, args, labels, claim_signal, id"
ALL_POOLS = f"SELECT {_COLUMNS} FROM warm_pool"  # noqa: S608  # a constant


def put(db: Database, pool: WarmPool, actor: Actor, now: float) -> None:
    """Create or replace a pool in a region of its application.

    Raises:
        NotFoundError: There is no such application, or it is not assigned to the region.
        ConflictError: The account has too many pools.
    """
    row = _row(pool)
    assigned = db.execute(
        f"SELECT {IN_REGION} FROM application WHERE account=:account AND name=:application",  # noqa: S608
        row | {"region": pool.location},
    ).fetchone()
    if assigned is None:
        raise NotFoundError("application", pool.application)
    if not assigned[0]:
        raise NotFoundError("region", pool.location)
    with bounded_pools(db, pool.account):
        written = db.execute(
            f"INSERT INTO warm_pool({_COLUMNS}, revision) VALUES (:account, :application,"  # noqa: S608
            " :location, :size, :enabled, :env, :args, :labels, :claim_signal, :id, 1)"
            " ON CONFLICT(account, application, location) DO UPDATE SET size=excluded.size,"
            " enabled=excluded.enabled, env=excluded.env, args=excluded.args,"
            " labels=excluded.labels, claim_signal=excluded.claim_signal,"
            " revision=warm_pool.revision+1, is_full=NULL"
            " WHERE (warm_pool.size, warm_pool.enabled, warm_pool.env, warm_pool.args,"
            " warm_pool.labels, warm_pool.claim_signal) IS DISTINCT FROM (excluded.size,"
            " excluded.enabled, excluded.env, excluded.args, excluded.labels,"
            " excluded.claim_signal)",
            row,
        )
        sql = "SELECT count(*) FROM warm_pool WHERE account=:account"
        if db.execute(sql, {"account": pool.account}).fetchone()[0] > MAX_POOLS:
            raise ConflictError(f"the account has {MAX_POOLS} warm pools, the maximum")
    if written.rowcount > 0:
        place = f"{pool.application}/{pool.location}"
        db.changed(Topic.POOL, pool.account, pool.application, pool.location)
        size = pool.size
        is_on = pool.enabled
        db.append(WarmPoolSet(pool.account, place, actor, now, size=size, enabled=is_on))


async def all_of(store: Store, account: str) -> AsyncGenerator[list[WarmPool], None]:
    """Read all pools of an account by application and region, a few at a time."""
    after = "", ""
    while pools := await store.read(_portion, account, *after):
        yield pools
        after = pools[-1].application, pools[-1].location


def _portion(db: Database, account: str, application: str, location: str) -> list[WarmPool]:
    rows = db.execute(
        f"{ALL_POOLS} WHERE account=:account"
        " AND (application, location) > (:application, :location)"
        " ORDER BY application, location LIMIT :portion",
        {"account": account, "application": application, "location": location, "portion": PORTION},
    )
    return [pool_of(row) for row in rows]


def remove(db: Database, place: tuple[str, str, str], actor: Actor, now: float) -> None:
    """Remove the pool of an account, application and region.

    Raises:
        NotFoundError: No such pool.
    """
    account, application, location = place
    where = "account=:account AND application=:application AND location=:location"
    values = {"account": account, "application": application, "location": location}
    if not _remove(db, where, values, actor=actor, now=now):
        raise NotFoundError("warm pool", f"{application}/{location}")


def remove_pools_elsewhere(
    db: Database, key: tuple[str, str], regions: Sequence[str], *, actor: Actor, now: float
) -> None:
    """Remove an application's pools outside its regions."""
    where = (
        "account=:account AND application=:application"
        f" AND NOT location {db.dialect.in_list('regions')}"
    )
    named = db.dialect.list_value(regions)
    values = {"account": key[0], "application": key[1], "regions": named}
    _remove(db, where, values, actor=actor, now=now)


def _remove(db: Database, where: str, values: dict[str, Any], *, actor: Actor, now: float) -> int:
    sql = f"DELETE FROM warm_pool WHERE {where} RETURNING account, application, location"  # noqa: S608
    removed = db.execute(sql, values).fetchall()
    for account, application, location in removed:
        place = f"{application}/{location}"
        db.changed(Topic.POOL, account, application, location)
        db.append(WarmPoolRemoved(account, place, actor, now))
    return len(removed)


def note_fills(db: Database, fills: Iterable[PoolFill], now: float) -> None:
    """Write which pools have become full or short; each change is one event."""
    for fill in fills:
        row = db.execute(
            "UPDATE warm_pool SET is_full=:is_full WHERE id=:id"
            " AND is_full IS DISTINCT FROM :is_full RETURNING account, application, location",
            {"id": fill.pool_id, "is_full": fill.is_full},
        ).fetchone()
        if row is None:
            continue
        account, application, location = row
        kind = WarmPoolFull if fill.is_full else WarmPoolShort
        place = f"{application}/{location}"
        db.changed(Topic.POOL, account, application, location)
        db.append(kind(account, place, ITSELF, now, size=fill.size, ready=fill.ready))


def _row(pool: WarmPool) -> dict[str, Any]:
    fields = asdict(pool)
    texts = {name: json.dumps(fields[name]) for name in ("env", "args", "labels")}
    return fields | texts | {"id": str(uuid.uuid4())}


def pool_of(row: tuple[Any, ...]) -> WarmPool:
    """Read a row of `ALL_POOLS`."""
    account, application, location, size, enabled, *texts, claim_signal, pool_id = row
    env, args, labels = (json.loads(text) for text in texts)
    place = account, application, location
    return WarmPool(*place, size, bool(enabled), env, tuple(args), labels, claim_signal, pool_id)
