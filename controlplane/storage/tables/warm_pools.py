"""Warm pools in the database: what accounts want kept ready, not what is."""

import json
import uuid
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.storage.engine.store import Actor, Database, Event, Store, record_event
from controlplane.storage.tables.quota_use import bounded_pools
from tiltyard.runtime.clock import to_ms

MAX_POOLS = 1000
"""Of one account: all of them are planned, and counted when a quota is."""

PORTION = 5
"""Pools that are read and shown at a time: each may have 192 KiB of env, args and labels."""

_COLUMNS = "account, application, location, size, enabled, env, args, labels, claim_signal, id"
ALL_POOLS = f"SELECT {_COLUMNS} FROM warm_pool"  # noqa: S608  # a constant


@dataclass(frozen=True, slots=True)
class WarmPool:
    """Standbys of an application in a region, and what each of them is started with.

    The process of a claimed one gets `claim_signal`, none where it is "". `id` is what hosts know
    the pool by, "" before it is stored.
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


class WarmPoolStore:
    """Transactions on warm pools."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def set(
        self, pool: WarmPool, actor: Actor, now: float, then: Callable[[None], None]
    ) -> None:
        """Make a pool, or replace what it was, in a region that its application is assigned to.

        `then` is called after the commit, even when the caller is gone.

        Raises:
            NotFoundError: There is no such application, or it is not assigned to the region.
            ConflictError: The account has too many pools.
            QuotaExceededError: It is larger than before, and the account's quota cannot hold it.
        """
        await self._store.run(lambda db: _set(db, pool, actor, to_ms(now)), then)

    async def all_of(self, account: str) -> AsyncGenerator[list[WarmPool], None]:
        """Read all pools of an account by application and region, a few at a time."""
        sql = (
            f"{ALL_POOLS} WHERE account=:account"
            " AND (application, location) > (:application, :location)"
            " ORDER BY application, location LIMIT :portion"
        )
        values = {"account": account, "application": "", "location": "", "portion": PORTION}
        while pools := await self._store.read(sql, values, pool_of):
            yield pools
            last = pools[-1]
            values |= {"application": last.application, "location": last.location}

    async def remove(
        self, place: tuple[str, str, str], actor: Actor, now: float, then: Callable[[None], None]
    ) -> None:
        """Remove the pool of an account, application and region.

        `then` is called after the commit, even when the caller is gone.

        Raises:
            NotFoundError: There is none.
        """

        def transaction(db: Database) -> None:
            account, application, location = place
            where = "account=:account AND application=:application AND location=:location"
            values = {"account": account, "application": application, "location": location}
            if not _remove(db, where, values, actor, to_ms(now)):
                raise NotFoundError("warm pool", f"{application}/{location}")

        await self._store.run(transaction, then)


def remove_pools_elsewhere(
    db: Database, key: tuple[str, str], regions: Sequence[str], actor: Actor, now_ms: int
) -> None:
    """Remove within a transaction the pools that an application has outside of its regions."""
    where = (
        "account=:account AND application=:application"
        " AND location NOT IN (SELECT value FROM json_each(:regions))"
    )
    values = {"account": key[0], "application": key[1], "regions": json.dumps(regions)}
    _remove(db, where, values, actor, now_ms)


def _set(db: Database, pool: WarmPool, actor: Actor, now_ms: int) -> None:
    assigned = db.execute(
        "SELECT EXISTS (SELECT 1 FROM json_each(regions) WHERE value=:location)"
        " FROM application WHERE account=:account AND name=:application",
        {
            "account": pool.account,
            "application": pool.application,
            "location": pool.location,
        },
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
            {**_row(pool), "id": str(uuid.uuid4())},
        )
        sql = "SELECT count(*) FROM warm_pool WHERE account=?"
        if db.execute(sql, (pool.account,)).fetchone()[0] > MAX_POOLS:
            raise ConflictError(f"the account has {MAX_POOLS} warm pools, which is the most")
    if written.rowcount > 0:
        place = f"{pool.application}/{pool.location}"
        event = Event(now_ms, "warm_pool.set", pool.account, actor, place)
        record_event(db, event, {"size": pool.size, "enabled": pool.enabled})


def _remove(db: Database, where: str, values: dict[str, str], actor: Actor, now_ms: int) -> int:
    sql = f"DELETE FROM warm_pool WHERE {where} RETURNING account, application, location"  # noqa: S608
    removed = db.execute(sql, values).fetchall()
    for account, application, location in removed:
        place = f"{application}/{location}"
        record_event(db, Event(now_ms, "warm_pool.removed", account, actor, place))
    return len(removed)


def _row(pool: WarmPool) -> dict[str, str | int]:
    return {
        "account": pool.account,
        "application": pool.application,
        "location": pool.location,
        "size": pool.size,
        "enabled": pool.enabled,
        "env": json.dumps(dict(pool.env)),
        "args": json.dumps(pool.args),
        "labels": json.dumps(dict(pool.labels)),
        "claim_signal": pool.claim_signal,
    }


def pool_of(row: tuple[Any, ...]) -> WarmPool:
    """Read a row of `ALL_POOLS`."""
    account, application, location, size, enabled, *texts, claim_signal, pool_id = row
    env, args, labels = (json.loads(text) for text in texts)
    return WarmPool(
        account,
        application,
        location,
        size,
        bool(enabled),
        env,
        tuple(args),
        labels,
        claim_signal,
        pool_id,
    )
