"""Accounts and their tokens in the database."""

import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from sqlite_utils import Database

from controlplane.store import Actor, Event, Store, record_event
from controlplane.tokens import (
    ACCOUNT_SCOPES,
    OPERATOR_SCOPES,
    NewToken,
    PresentedToken,
    Scope,
    matches,
)

LAST_USED_STEP_MS = 60_000
"""A token's last use is written at most once in this time: reads stay reads."""

INITIALISER = Actor("init")
"""Who makes the first accounts and tokens, on the machine itself."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sent a request, and from where; `account` is empty for an operator."""

    account: str
    token_id: str
    scopes: frozenset[Scope]
    address: str = ""

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
        return await self._store.run(lambda db: _caller_of(db, presented, address, now_ms))

    async def create_account(self, name: str, token: NewToken, now_ms: int) -> bool:
        """Make an account with its first token; False when the account is already there."""
        return await self._store.run(lambda db: _create_account(db, name, token, now_ms))

    async def create_operator_token(self, token: NewToken, now_ms: int) -> bool:
        """Make the first operator token; False when there is one already."""

        def transaction(db: Database) -> bool:
            if db.execute("SELECT 1 FROM token WHERE account IS NULL LIMIT 1").fetchone():
                return False
            _insert_token(db, None, token, OPERATOR_SCOPES, now_ms)
            return True

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
                _create_account(db, name, token, now_ms)
            _insert_token(db, None, operator, OPERATOR_SCOPES, now_ms)
            return True

        return await self._store.run(transaction)


def _create_account(db: Database, name: str, token: NewToken, now_ms: int) -> bool:
    inserted = db.execute(
        "INSERT OR IGNORE INTO account(name, created_ms) VALUES (?,?)", (name, now_ms)
    )
    if inserted.rowcount == 0:
        return False
    record_event(db, Event(now_ms, "account.created", name, INITIALISER, name))
    _insert_token(db, name, token, ACCOUNT_SCOPES, now_ms)
    return True


def _insert_token(
    db: Database, account: str | None, token: NewToken, scopes: Collection[Scope], now_ms: int
) -> None:
    db.execute(
        "INSERT INTO token(id, account, name, secret_hash, scopes, created_ms)"
        " VALUES (?,?,'initial',?,?,?)",
        (token.token_id, account, token.secret_hash, json.dumps(sorted(scopes)), now_ms),
    )
    event = Event(now_ms, "token.created", account or "", INITIALISER, token.token_id)
    record_event(db, event, {"scopes": sorted(scopes)})


def _caller_of(
    db: Database, presented: PresentedToken, address: str, now_ms: int
) -> Caller | None:
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
    if last_used_ms is None or last_used_ms + LAST_USED_STEP_MS <= now_ms:
        db.execute(
            "UPDATE token SET last_used_ms=?, last_used_address=? WHERE id=?",
            (now_ms, address, presented.token_id),
        )
    held = frozenset(Scope(scope) for scope in json.loads(scopes))
    return Caller(account or "", presented.token_id, held, address)
