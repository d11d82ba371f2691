"""Warm pools in the database: the desired state."""

import json
import uuid
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.storage.engine.store import Actor, Database, Store, record_event
from controlplane.storage.tables.quota_use import bounded_pools

MAX_POOLS = 1000  # Per account: all are planned, and counted for quotas
PORTION = 5  # Pools read at a time: each may have 192 KiB of env, args and labels

_COLUMNS = "account, application, location, size, enabled, env, args, labels, claim_signal, id"
ALL_POOLS = f"SELECT {_COLUMNS} FROM warm_pool"  # noqa: S608  # a constant


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Standbys of an application in a region, and their start parameters.

    The process of a claimed one gets `claim_signal`, if any. `id` is the pool's id on hosts, ""
    before it is stored.
    """

    account: str
    application: str
    location: str
    size: int
    enabled: bool = True
    env: Mapping[str, str] = field(default_factory=dict)
    args: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    claim_signal: str = ""
    id: str = ""


def put(db: Database, pool: WarmPool, actor: Actor, now: float) -> None:
    """Create or replace a pool in a region of its application.

    Raises:
        NotFoundError: There is no such application, or it is not assigned to the region.
        ConflictError: The account has too many pools.
    """
    row = _row(pool)
    assigned = db.execute(
        "SELECT EXISTS (SELECT 1 FROM json_each(regions) WHERE value=:location)"
        " FROM application WHERE account=:account AND name=:application",
        row,
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
            " labels=excluded.labels, claim_signal=excluded.claim_signal, revision=revision+1"
            " WHERE (size, enabled, env, args, labels, claim_signal) IS NOT (excluded.size,"
            " excluded.enabled, excluded.env, excluded.args, excluded.labels,"
            " excluded.claim_signal)",
            row,
        )
        sql = "SELECT count(*) FROM warm_pool WHERE account=?"
        if db.execute(sql, (pool.account,)).fetchone()[0] > MAX_POOLS:
            raise ConflictError(f"the account has {MAX_POOLS} warm pools, the maximum")
    if written.rowcount > 0:
        place = f"{pool.application}/{pool.location}"
        data = {"size": pool.size, "enabled": pool.enabled}
        record_event(db, "warm_pool.set", pool.account, place, actor=actor, now=now, **data)


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
        NotFoundError: There is none.
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
        " AND location NOT IN (SELECT value FROM json_each(:regions))"
    )
    values = {"account": key[0], "application": key[1], "regions": json.dumps(regions)}
    _remove(db, where, values, actor=actor, now=now)


def _remove(db: Database, where: str, values: dict[str, str], *, actor: Actor, now: float) -> int:
    sql = f"DELETE FROM warm_pool WHERE {where} RETURNING account, application, location"  # noqa: S608
    removed = db.execute(sql, values).fetchall()
    for account, application, location in removed:
        place = f"{application}/{location}"
        record_event(db, "warm_pool.removed", account, place, actor=actor, now=now)
    return len(removed)


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
