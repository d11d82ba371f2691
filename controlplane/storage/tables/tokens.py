"""API tokens in the database.

A token whose maker was revoked or has expired is revoked or expired itself: revoking writes it to
every descendant in the same transaction, expiry is bounded when a token is made. So a look at a
token's own row is enough to decide whether it is good.
"""

import json
from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from typing import Any

from controlplane.domain.errors import ConflictError, NotFoundError, UnauthorizedError
from controlplane.domain.tokens import NewToken, Scope, earlier
from controlplane.storage.engine.store import Actor, Database, Event, Store, record_event
from controlplane.storage.tables.quota_use import has_account
from tiltyard.runtime.clock import from_ms, to_ms

GOOD = "revoked_ms IS NULL AND (expire_ms IS NULL OR expire_ms > :now)"
"""What holds for a good token at a time."""

INITIALISER = Actor("init")
"""Who makes the first accounts and tokens, on the machine itself."""

MAX_GOOD_TOKENS = 1000
"""Of one account, and of the operators: their list is answered whole."""

PORTION = 1000
"""Tokens that are forgotten in one transaction: others wait that long at most."""

ENDED = "(revoked_ms < :value OR expire_ms < :value)"
"""What holds for a token that ended before a time."""

_COLUMNS = (
    "id, account, name, scopes, parent, created_ms, expire_ms, last_used_ms, last_used_address,"
    " revoked_ms"
)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A token that a caller wants; `expire` is None when it named no time."""

    name: str
    scopes: frozenset[Scope]
    expire: float | None


@dataclass(frozen=True, slots=True)
class Token:
    """A token as operators see it; `account` and `parent` are None where there is none."""

    id: str
    account: str | None
    name: str
    scopes: tuple[str, ...]
    parent: str | None
    created: float
    expire: float | None
    last_used: float | None
    last_used_address: str | None
    revoked: float | None


class TokenStore:
    """Transactions on tokens made from tokens, and by operators."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(self, maker: Actor, token: NewToken, wanted: TokenRequest, now: float) -> None:
        """Make a token of the maker's account.

        Raises:
            UnauthorizedError: The maker's token was revoked or has expired.
            ConflictError: A good token of the account has the name, or it has too many.
        """
        await self._store.run(lambda db: _make(db, maker, token, wanted, to_ms(now)))

    async def make_for(
        self, account: str, actor: Actor, token: NewToken, wanted: TokenRequest, now: float
    ) -> None:
        """Make a token of any account that is no token's child.

        Raises:
            UnauthorizedError: The actor's token was revoked or has expired.
            NotFoundError: There is no such account.
            ConflictError: A good token of the account has the name, or it has too many.
        """

        def transaction(db: Database) -> None:
            if not is_good(db, actor.name, to_ms(now)):
                raise UnauthorizedError
            if not has_account(db, account):
                raise NotFoundError("account", account)
            _insert(db, token, wanted, actor, to_ms(now), account=account)

        await self._store.run(transaction)

    async def all(self, account: str | None, now: float, *, ended_too: bool) -> list[Token]:
        """Read tokens in the order of their making.

        Those of one account, of operators where it is empty, or of all where it is None; unless
        `ended_too`, only good ones.
        """
        sql = (
            f"SELECT {_COLUMNS} FROM token"  # noqa: S608
            " WHERE (:account IS NULL OR coalesce(account, '') = :account)"
            f" AND (:ended_too OR ({GOOD})) ORDER BY created_ms, id"
        )
        values = {"account": account, "now": to_ms(now), "ended_too": ended_too}
        return await self._store.read(sql, values, _token)

    async def revoke(
        self,
        token_id: str,
        actor: Actor,
        now: float,
        then: Callable[[list[str]], None] | None = None,
    ) -> list[str]:
        """End a token and all that were made from it; return whose end this was.

        Empty when it had been revoked before. `then` is called with the same once they have
        ended, even when the caller is gone.

        Raises:
            NotFoundError: There is no such token.
        """
        return await self._store.run(lambda db: _revoke(db, token_id, actor, to_ms(now)), then)

    async def forget_ended(self, before: float) -> None:
        """Remove tokens that were revoked or expired before a time, a portion after the other.

        What was made from them ended no later, so that it has gone before them.
        """
        while await self._store.run(lambda db: remove_tokens(db, ENDED, to_ms(before))):
            pass


def is_good(db: Database, token_id: str, now_ms: int) -> bool:
    """Return, within a transaction, whether a token is there, not revoked and not expired."""
    sql = f"SELECT 1 FROM token WHERE id=:id AND {GOOD}"  # noqa: S608
    return db.execute(sql, {"id": token_id, "now": now_ms}).fetchone() is not None


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


def remove_tokens(db: Database, condition: str, value: int | str) -> int:
    """Remove a portion of the tokens of a condition on `:value`; return how many.

    A token goes after those that were made from it, which the condition must hold, too.
    """
    sql = (
        f"DELETE FROM token WHERE id IN (SELECT id FROM token AS maker WHERE {condition}"  # noqa: S608
        " AND NOT EXISTS (SELECT 1 FROM token WHERE parent = maker.id) LIMIT :portion)"
    )
    return db.execute(sql, {"value": value, "portion": PORTION}).rowcount


def _make(db: Database, maker: Actor, token: NewToken, wanted: TokenRequest, now_ms: int) -> None:
    if not is_good(db, maker.name, now_ms):
        raise UnauthorizedError
    sql = "SELECT account, expire_ms FROM token WHERE id=?"
    account, makers_expire_ms = db.execute(sql, (maker.name,)).fetchone()
    bounded = replace(wanted, expire=earlier(wanted.expire, from_ms(makers_expire_ms)))
    _insert(db, token, bounded, maker, now_ms, account=account, parent=maker.name)


def _insert(
    db: Database,
    token: NewToken,
    wanted: TokenRequest,
    actor: Actor,
    now_ms: int,
    *,
    account: str | None,
    parent: str | None = None,
) -> None:
    good = f"FROM token WHERE account IS :account AND {GOOD}"
    values = {"account": account, "now": now_ms, "name": wanted.name}
    if db.execute(f"SELECT 1 {good} AND name=:name", values).fetchone():
        raise ConflictError("a token of that name exists already")
    count = db.execute(f"SELECT count(*) {good}", values).fetchone()
    if count[0] >= MAX_GOOD_TOKENS:
        text = f"there are {MAX_GOOD_TOKENS} good tokens already, which is the most"
        raise ConflictError(text)
    insert_token(
        db,
        account,
        token,
        wanted.scopes,
        now_ms,
        name=wanted.name,
        actor=actor,
        parent=parent,
        expire_ms=to_ms(wanted.expire),
    )


def _revoke(db: Database, token_id: str, actor: Actor, now_ms: int) -> list[str]:
    if db.execute("SELECT 1 FROM token WHERE id=?", (token_id,)).fetchone() is None:
        raise NotFoundError("token", token_id)
    ended = db.execute(
        "WITH RECURSIVE family(id) AS (VALUES (:id)"
        " UNION SELECT token.id FROM token JOIN family ON token.parent = family.id)"
        " UPDATE token SET revoked_ms=:now WHERE revoked_ms IS NULL"
        " AND id IN (SELECT id FROM family) RETURNING id, account",
        {"id": token_id, "now": now_ms},
    ).fetchall()
    for ended_id, account in ended:
        event = Event(now_ms, "token.revoked", account or "", actor, ended_id)
        record_event(db, event, {"with": token_id})
    return [ended_id for ended_id, _ in ended]


def _token(row: tuple[Any, ...]) -> Token:
    token_id, account, name, scopes, parent, created, expire, used, address, revoked = row
    return Token(
        token_id,
        account,
        name,
        tuple(json.loads(scopes)),
        parent,
        created=from_ms(created),
        expire=from_ms(expire),
        last_used=from_ms(used),
        last_used_address=address,
        revoked=from_ms(revoked),
    )
