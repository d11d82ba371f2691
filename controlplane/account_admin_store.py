"""Accounts as operators see and change them, in the database."""

from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from sqlite_utils import Database

from controlplane.account_store import create_account
from controlplane.quotas import Quota, Usage
from controlplane.store import Actor, Event, Store, record_event
from controlplane.tokens import NewToken

_OF_AN_ACCOUNT = ("session", "warm_pool", "tag", "application", "token")
"""Tables whose rows go with their account, each before those that it refers to."""


@dataclass(frozen=True, slots=True)
class Account:
    """An account, what it may hold and what its live sessions hold."""

    name: str
    created_ms: int
    quota: Quota
    usage: Usage


@dataclass(frozen=True, slots=True)
class AccountRemoved:
    """The account is gone, with these of its tokens among the rest."""

    token_ids: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class AccountInUse:
    """A session of the account lives, or is about to."""


Removal = AccountRemoved | AccountInUse | None


class AccountAdminStore:
    """Transactions on whole accounts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[Account]:
        """Read all accounts by name."""
        sql = (
            "SELECT name, account.created_ms, quota_sessions, quota_nano_cpus, quota_memory_bytes,"
            " count(id), coalesce(sum(nano_cpus), 0), coalesce(sum(memory_bytes), 0)"
            " FROM account LEFT JOIN session ON session.account = name AND ended_ms IS NULL"
            " GROUP BY name ORDER BY name"
        )
        return await self._store.read(sql, (), _account)

    async def create(
        self, name: str, quota: Quota, token: NewToken, actor: Actor, now_ms: int
    ) -> bool:
        """Make an account with its first token; False when the name is taken."""
        return await self._store.run(
            lambda db: create_account(db, name, token, actor, now_ms, quota=quota)
        )

    async def replace_quota(self, name: str, quota: Quota, actor: Actor, now_ms: int) -> bool:
        """Set what an account may hold from its next start on; False when there is none."""

        def transaction(db: Database) -> bool:
            changed = db.execute(
                "UPDATE account SET quota_sessions=?, quota_nano_cpus=?, quota_memory_bytes=?"
                " WHERE name=?",
                (quota.sessions, quota.nano_cpus, quota.memory_bytes, name),
            )
            if changed.rowcount:
                event = Event(now_ms, "account.changed", name, actor, name)
                record_event(db, event, {"quota": asdict(quota)})
            return changed.rowcount > 0

        return await self._store.run(transaction)

    async def remove(
        self, name: str, actor: Actor, now_ms: int, then: Callable[[Removal], None]
    ) -> Removal:
        """Remove an account and all that is its own, but for its lines in the audit.

        None when there is no such account. `then` is told the outcome once it is so, even when
        the caller is gone.
        """
        return await self._store.run(lambda db: _remove(db, name, actor, now_ms), then)


def _account(row: tuple[Any, ...]) -> Account:
    return Account(row[0], row[1], Quota(*row[2:5]), Usage(*row[5:8]))


def _remove(db: Database, name: str, actor: Actor, now_ms: int) -> Removal:
    if not db.execute("SELECT 1 FROM account WHERE name=?", (name,)).fetchone():
        return None
    # A start under way holds a row: what is counted here cannot come to run later.
    live = "SELECT 1 FROM session WHERE account=? AND ended_ms IS NULL LIMIT 1"
    if db.execute(live, (name,)).fetchone():
        return AccountInUse()
    tokens = db.execute("SELECT id FROM token WHERE account=?", (name,)).fetchall()
    removed = {
        table: db.execute(f"DELETE FROM {table} WHERE account=?", (name,)).rowcount  # noqa: S608
        for table in _OF_AN_ACCOUNT
    }
    db.execute("DELETE FROM account WHERE name=?", (name,))
    record_event(db, Event(now_ms, "account.removed", name, actor, name), {"with": removed})
    return AccountRemoved(tuple(token_id for (token_id,) in tokens))
