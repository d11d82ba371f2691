"""Accounts and their tokens in the database."""

import json
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass

from sqlite_utils import Database

from controlplane.domain.quotas import UNLIMITED, Quota
from controlplane.domain.tokens import (
    ACCOUNT_SCOPES,
    OPERATOR_SCOPES,
    NewToken,
    PresentedToken,
    Scope,
    matches,
)
from controlplane.storage.engine.store import Actor, Event, Store, record_event

LAST_USED_STEP_MS = 60_000
"""A token's last use is written at most once in this time: reads stay reads."""

GOOD = "revoked_ms IS NULL AND (expire_ms IS NULL OR expire_ms > :now)"
"""What holds for a good token at a time."""

INITIALISER = Actor("init")
"""Who makes the first accounts and tokens, on the machine itself."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and from where; `account` is empty for an operator.

    `expire_ms` is when the token ends by itself, None for never.
    """

    account: str
    token_id: str
    scopes: frozenset[Scope]
    address: str = ""
    expire_ms: int | None = None

    @property
    def actor(self) -> Actor:
        """The caller as the audit names it."""
        return Actor(self.token_id, self.address)


class AccountStore:
    """Transactions on accounts and tokens."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def caller_of(
        self, presented: PresentedToken, address: str, now_ms: int
    ) -> Caller | None:
        """Find whose token this is; None for every kind of bad token."""
        found = await self._store.look(lambda db: _caller_of(db, presented, address, now_ms))
        if found is None:
            return None
        caller, last_used_ms = found
        if last_used_ms is None or last_used_ms + LAST_USED_STEP_MS <= now_ms:
            sql = "UPDATE token SET last_used_ms=:now, last_used_address=:address WHERE id=:id"
            used = {"now": now_ms, "address": address, "id": caller.token_id}
            await self._store.run(lambda db: db.execute(sql, used))
        return caller

    async def is_good(self, token_id: str, now_ms: int) -> bool:
        """Tell whether a token that was good is so still."""
        return await self._store.run(lambda db: is_good(db, token_id, now_ms))

    async def create_account(self, name: str, token: NewToken, now_ms: int) -> bool:
        """Make an account with its first token; False when the account is already there."""
        return await self._store.run(
            lambda db: create_account(db, name, token, INITIALISER, now_ms)
        )

    async def create_operator_token(self, token: NewToken, now_ms: int, *, another: bool) -> bool:
        """Make the first operator token, or `another`; False when there is one already.

        It has no parent: it stays whatever becomes of the others.
        """

        def transaction(db: Database) -> bool:
            if not db.execute("SELECT 1 FROM token WHERE account IS NULL LIMIT 1").fetchone():
                insert_token(db, None, token, OPERATOR_SCOPES, now_ms)
                return True
            if another:
                name = f"init-{token.token_id}"
                insert_token(db, None, token, OPERATOR_SCOPES, now_ms, name=name)
            return another

        return await self._store.run(transaction)

    async def create_first(
        self, accounts: Mapping[str, NewToken], operator: NewToken, now_ms: int
    ) -> bool:
        """Make accounts and tokens unless there is a token; tell whether these are there now."""

        def transaction(db: Database) -> bool:
            stored = dict(db.execute("SELECT id, secret_hash FROM token"))
            if stored:
                tokens = (*accounts.values(), operator)
                return all(stored.get(t.token_id) == t.secret_hash for t in tokens)
            for name, token in accounts.items():
                create_account(db, name, token, INITIALISER, now_ms)
            insert_token(db, None, operator, OPERATOR_SCOPES, now_ms)
            return True

        return await self._store.run(transaction)


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


def is_good(db: Database, token_id: str, now_ms: int) -> bool:
    """Tell within a transaction whether a token is there, not revoked and not expired."""
    sql = f"SELECT 1 FROM token WHERE id=:id AND {GOOD}"  # noqa: S608
    return db.execute(sql, {"id": token_id, "now": now_ms}).fetchone() is not None


def has_account(db: Database, name: str) -> bool:
    """Tell within a transaction whether an account is there, and not being removed."""
    sql = "SELECT 1 FROM account WHERE name=? AND removed_ms IS NULL"
    return db.execute(sql, (name,)).fetchone() is not None


def insert_token(
    db: Database,
    account: str | None,
    token: NewToken,
    scopes: Collection[Scope],
    now_ms: int,
    *,
    name: str = "initial",
    actor: Actor = INITIALISER,
    parent: str | None = None,
    expire_ms: int | None = None,
) -> None:
    """Write a token within a transaction; whether it may be is asked before."""
    scope_names = sorted(scopes)
    db.execute(
        "INSERT INTO token(id, account, name, secret_hash, scopes, parent, created_ms, expire_ms)"
        " VALUES (:id, :account, :name, :hash, :scopes, :parent, :now, :expire)",
        {
            "id": token.token_id,
            "account": account,
            "name": name,
            "hash": token.secret_hash,
            "scopes": json.dumps(scope_names),
            "parent": parent,
            "now": now_ms,
            "expire": expire_ms,
        },
    )
    event = Event(now_ms, "token.created", account or "", actor, token.token_id)
    record_event(db, event, {"name": name, "scopes": scope_names, "expire_ms": expire_ms})


def _caller_of(
    db: Database, presented: PresentedToken, address: str, now_ms: int
) -> tuple[Caller, int | None] | None:
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
    return Caller(account or "", presented.token_id, held, address, expire_ms), last_used_ms
