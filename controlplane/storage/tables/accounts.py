"""Accounts in the database, their callers, and what operators do with them."""

import json
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.quotas import UNLIMITED, Quota, Usage
from controlplane.domain.tokens import (
    ACCOUNT_SCOPES,
    OPERATOR_SCOPES,
    NewToken,
    PresentedToken,
    Scope,
    matches,
)
from controlplane.storage.engine.store import Actor, Database, Event, Store, record_event
from controlplane.storage.tables.quota_use import POOLS, has_account
from controlplane.storage.tables.session_rows import PORTION, remove_sessions
from controlplane.storage.tables.tokens import (
    GOOD,
    INITIALISER,
    insert_token,
    is_good,
    remove_tokens,
)
from tiltyard.runtime.clock import from_ms, to_ms

LAST_USED_STEP = 60.0
"""A token's last use is written at most once in this time: reads stay reads."""

_OF_AN_ACCOUNT = {
    "session": "number",
    "warm_pool": "application, location",
    "tag": "application, name",
    "application": "name",
    "token": "id",
}
"""Tables whose rows go with their account, and their keys; each before those that it refers to."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and from where; `account` is empty for an operator.

    `expire` is when the token ends by itself, in Unix time; None for never.
    """

    account: str
    token_id: str
    scopes: frozenset[Scope]
    address: str = ""
    expire: float | None = None

    @property
    def actor(self) -> Actor:
        """The caller as the audit names it."""
        return Actor(self.token_id, self.address)


@dataclass(frozen=True, slots=True)
class Account:
    """An account, what it may hold and what its live sessions hold."""

    name: str
    created: float
    quota: Quota
    usage: Usage


class AccountStore:
    """Transactions on accounts and tokens."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def caller_of(
        self, presented: PresentedToken, address: str, now: float
    ) -> Caller | None:
        """Find whose token this is; None for every kind of bad token."""
        found = await self._store.look(lambda db: _caller_of(db, presented, address, to_ms(now)))
        if found is None:
            return None
        caller, last_used = found
        if last_used is None or last_used + LAST_USED_STEP <= now:
            sql = "UPDATE token SET last_used_ms=:now, last_used_address=:address WHERE id=:id"
            used = {"now": to_ms(now), "address": address, "id": caller.token_id}
            await self._store.run(lambda db: db.execute(sql, used))
        return caller

    async def is_good(self, token_id: str, now: float) -> bool:
        """Return whether a token that was good still is."""
        return await self._store.run(lambda db: is_good(db, token_id, to_ms(now)))

    async def create_account(self, name: str, token: NewToken, now: float) -> bool:
        """Make an account with its first token; False when the account is already there."""
        return await self._store.run(
            lambda db: create_account(db, name, token, INITIALISER, to_ms(now))
        )

    async def create_operator_token(self, token: NewToken, now: float, *, another: bool) -> bool:
        """Make the first operator token, or `another`; False when there is one already.

        It has no parent: it stays whatever becomes of the others.
        """

        def transaction(db: Database) -> bool:
            if not db.execute("SELECT 1 FROM token WHERE account IS NULL LIMIT 1").fetchone():
                insert_token(db, None, token, OPERATOR_SCOPES, to_ms(now))
                return True
            if another:
                name = f"init-{token.token_id}"
                insert_token(db, None, token, OPERATOR_SCOPES, to_ms(now), name=name)
            return another

        return await self._store.run(transaction)

    async def create_first(
        self, accounts: Mapping[str, NewToken], operator: NewToken, now: float
    ) -> bool:
        """Make accounts and tokens unless there is a token; return whether these are there now."""

        def transaction(db: Database) -> bool:
            stored = dict(db.execute("SELECT id, secret_hash FROM token"))
            if stored:
                tokens = (*accounts.values(), operator)
                return all(stored.get(t.token_id) == t.secret_hash for t in tokens)
            for name, token in accounts.items():
                create_account(db, name, token, INITIALISER, to_ms(now))
            insert_token(db, None, operator, OPERATOR_SCOPES, to_ms(now))
            return True

        return await self._store.run(transaction)


class AccountAdminStore:
    """Transactions on whole accounts."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def all(self) -> list[Account]:
        """Read all accounts by name."""
        sql = (
            "SELECT name, account.created_ms, quota_sessions, quota_nano_cpus, quota_memory_bytes,"  # noqa: S608
            " count(id), coalesce(sum(nano_cpus), 0), coalesce(sum(memory_bytes), 0),"
            f" (SELECT nano_cpus FROM ({POOLS}account.name)),"
            f" (SELECT memory_bytes FROM ({POOLS}account.name))"
            " FROM account LEFT JOIN session ON session.account = name AND ended_ms IS NULL"
            " WHERE removed_ms IS NULL GROUP BY name ORDER BY name"
        )
        return await self._store.read(sql, (), _account)

    async def create(
        self, name: str, quota: Quota, token: NewToken, actor: Actor, now: float
    ) -> None:
        """Make an account with its first token.

        What is left of a removed account of the name goes first.

        Raises:
            ConflictError: There is an account of that name.
        """

        def transaction(db: Database) -> None:
            if not create_account(db, name, token, actor, to_ms(now), quota=quota):
                raise ConflictError("an account of that name exists already")

        await self._clear(name)
        await self._store.run(transaction)

    async def replace_quota(self, name: str, quota: Quota, actor: Actor, now: float) -> None:
        """Set what an account may hold from its next start on.

        Raises:
            NotFoundError: There is no such account.
        """

        def transaction(db: Database) -> None:
            changed = db.execute(
                "UPDATE account SET quota_sessions=:sessions, quota_nano_cpus=:nano_cpus,"
                " quota_memory_bytes=:memory_bytes WHERE name=:name AND removed_ms IS NULL",
                {"name": name, **asdict(quota)},
            )
            if not changed.rowcount:
                raise NotFoundError("account", name)
            event = Event(to_ms(now), "account.changed", name, actor, name)
            record_event(db, event, {"quota": asdict(quota)})

        await self._store.run(transaction)

    async def remove(
        self, name: str, actor: Actor, now: float, then: Callable[[list[str]], None]
    ) -> None:
        """Remove an account and all that is its own, but for its lines in the audit.

        It is gone for everybody at once; what was its own follows in portions, so that others
        are not delayed. When that breaks off, `finish_removals` goes on.

        `then` is called with the ids of the tokens that ended, once they have, even when the
        caller is gone.

        Raises:
            NotFoundError: There is no such account.
            ConflictError: A session of it lives, or is about to.
        """
        await self._store.run(lambda db: _remove(db, name, actor, to_ms(now)), then)
        await self._clear(name)

    async def finish_removals(self, before: float) -> None:
        """Remove what is left of accounts that were removed before a time."""
        sql = "SELECT name FROM account WHERE removed_ms <= ?"
        for name in await self._store.read(sql, (to_ms(before),), lambda row: str(row[0])):
            await self._clear(name)

    async def _clear(self, name: str) -> None:
        while await self._store.run(lambda db: _clear_portion(db, name)):
            pass


def create_account(
    db: Database,
    name: str,
    token: NewToken,
    actor: Actor,
    now_ms: int,
    *,
    quota: Quota = UNLIMITED,
) -> bool:
    """Make an account with its first token within a transaction; False when it is there."""
    inserted = db.execute(
        "INSERT OR IGNORE INTO account(name, created_ms, quota_sessions, quota_nano_cpus,"
        " quota_memory_bytes) VALUES (:name, :now, :sessions, :nano_cpus, :memory_bytes)",
        {"name": name, "now": now_ms, **asdict(quota)},
    )
    if inserted.rowcount == 0:
        return False
    event = Event(now_ms, "account.created", name, actor, name)
    record_event(db, event, {"quota": asdict(quota)})
    insert_token(db, name, token, ACCOUNT_SCOPES, now_ms, actor=actor)
    return True


def _caller_of(
    db: Database, presented: PresentedToken, address: str, now_ms: int
) -> tuple[Caller, float | None] | None:
    """Give the caller of a good token, and when it was last used."""
    row = db.execute(
        "SELECT secret_hash, account, scopes, expire_ms, revoked_ms, last_used_ms"
        " FROM token WHERE id = ?",
        (presented.token_id,),
    ).fetchone()
    if not matches(presented, row[0] if row else None):
        return None
    _, account, scopes, expire_ms, revoked_ms, last_used_ms = row
    if revoked_ms is not None or (expire_ms is not None and expire_ms <= now_ms):
        return None
    held = frozenset(Scope(scope) for scope in json.loads(scopes))
    return Caller(account or "", presented.token_id, held, address, from_ms(expire_ms)), from_ms(
        last_used_ms
    )


def _account(row: tuple[Any, ...]) -> Account:
    used = Usage(row[5], row[6] + row[8], row[7] + row[9])
    return Account(row[0], from_ms(row[1]), Quota(*row[2:5]), used)


def _remove(db: Database, name: str, actor: Actor, now_ms: int) -> list[str]:
    if not has_account(db, name):
        raise NotFoundError("account", name)
    # A start under way holds a row: what is counted here cannot come to run later.
    live = "SELECT 1 FROM session WHERE account=? AND ended_ms IS NULL LIMIT 1"
    if db.execute(live, (name,)).fetchone():
        raise ConflictError("a session of the account lives")
    ended = db.execute(
        f"UPDATE token SET revoked_ms=:now WHERE account=:name AND {GOOD} RETURNING id",  # noqa: S608
        {"name": name, "now": now_ms},
    ).fetchall()
    sql = "UPDATE account SET removed_ms=:now WHERE name=:name"
    db.execute(sql, {"name": name, "now": now_ms})
    event = Event(now_ms, "account.removed", name, actor, name)
    record_event(db, event, {"tokens": len(ended)})
    return [token_id for (token_id,) in ended]


def _clear_portion(db: Database, name: str) -> bool:
    """Remove a portion of what a removed account left, and at last its row; False after that.

    Each portion begins with the first table again: a call that was let in before the removal may
    have added to it.
    """
    removed = "SELECT 1 FROM account WHERE name=? AND removed_ms IS NOT NULL"
    if not db.execute(removed, (name,)).fetchone():
        return False
    if any(_remove_rows(db, table, key, name) for table, key in _OF_AN_ACCOUNT.items()):
        return True
    db.execute("DELETE FROM account WHERE name=?", (name,))
    return False


def _remove_rows(db: Database, table: str, key: str, account: str) -> int:
    if table == "session":
        return remove_sessions(db, "account = :value", account)
    if table == "token":
        return remove_tokens(db, "account = :value", account)
    chosen = f"SELECT {key} FROM {table} WHERE account=:account LIMIT :portion"  # noqa: S608
    sql = f"DELETE FROM {table} WHERE account=:account AND ({key}) IN ({chosen})"  # noqa: S608
    return db.execute(sql, {"account": account, "portion": PORTION}).rowcount
