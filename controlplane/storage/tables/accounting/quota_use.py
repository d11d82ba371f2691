"""Quota usage of an account, within a transaction: live sessions, and warm pools by size.

A claimed standby is replaced at once, so a pool always uses its whole size, besides the sessions
claimed from it.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from controlplane.domain.access.quotas import Quota, Usage, exceeded_limit
from controlplane.domain.errors import QuotaExceededError
from controlplane.storage.engine.database import Database

_SESSIONS = (
    "SELECT count(*), coalesce(sum(nano_cpus), 0), coalesce(sum(memory_bytes), 0)"
    " FROM session WHERE account=:account AND ended_ms IS NULL"
)
POOLS = (
    "SELECT coalesce(sum(size * reserved_nano_cpus), 0) AS nano_cpus,"
    " coalesce(sum(size * reserved_memory_bytes), 0) AS memory_bytes"
    " FROM warm_pool JOIN application ON application.account = warm_pool.account"
    " AND application.name = warm_pool.application WHERE enabled AND warm_pool.account="
)
"""Usage of an account's pools; the account follows."""

_POOLS_OF = f"{POOLS}:account"


def quota_of(db: Database, account: str) -> Quota | None:
    """Read the quota of an account; None if there is no such account."""
    row = db.execute(
        "SELECT quota_sessions, quota_nano_cpus, quota_memory_bytes FROM account"
        " WHERE name=:name AND removed_ms IS NULL",
        {"name": account},
    ).fetchone()
    return None if row is None else Quota(*row)


def has_account(db: Database, name: str) -> bool:
    """Return whether an account exists and is not being removed."""
    return quota_of(db, name) is not None


def passed_limit(db: Database, account: str, quota: Quota) -> str | None:
    """Return the first limit that the account's usage exceeds, or None."""
    if quota.unlimited:
        return None
    sessions, *held = db.execute(_SESSIONS, {"account": account}).fetchone()
    if quota.limits_resources:
        pools = db.execute(_POOLS_OF, {"account": account}).fetchone()
        held = [one + other for one, other in zip(held, pools, strict=True)]
    return exceeded_limit(quota, Usage(sessions, *held))


@contextmanager
def bounded_pools(db: Database, account: str) -> Iterator[None]:
    """Check that changes within keep an account's pools inside its quota.

    Raises:
        QuotaExceededError: They grew in a resource beyond its limit.
    """
    quota = quota_of(db, account)
    if quota is None or not quota.limits_resources:
        yield
        return
    cpus, memory = db.execute(_POOLS_OF, {"account": account}).fetchone()
    yield
    new_cpus, new_memory = db.execute(_POOLS_OF, {"account": account}).fetchone()
    grown = Quota(
        nano_cpus=quota.nano_cpus if new_cpus > cpus else None,
        memory_bytes=quota.memory_bytes if new_memory > memory else None,
    )
    limit = passed_limit(db, account, grown)
    if limit is not None:
        raise QuotaExceededError(limit, "keep the warm pool")
