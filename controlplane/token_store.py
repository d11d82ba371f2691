"""API tokens that were made from others, in the database.

A token whose maker was revoked or has expired is revoked or expired itself: revoking writes it to
every descendant in the same transaction, expiry is bounded when a token is made. So a look at a
token's own row is enough to tell whether it is good.
"""

import json
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

from sqlite_utils import Database

from controlplane.account_store import is_good
from controlplane.store import Actor, Event, Store, record_event
from controlplane.tokens import NewToken, Scope, earlier

_COLUMNS = (
    "id, account, name, scopes, parent, created_ms, expire_ms, last_used_ms, last_used_address,"
    " revoked_ms"
)


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A token that a caller wants; `expire_ms` is None when it named no time."""

    name: str
    scopes: frozenset[Scope]
    expire_ms: int | None


@dataclass(frozen=True, slots=True)
class Token:
    """A token as operators see it; `account` and `parent` are None where there is none."""

    id: str
    account: str | None
    name: str
    scopes: tuple[str, ...]
    parent: str | None
    created_ms: int
    expire_ms: int | None
    last_used_ms: int | None
    last_used_address: str | None
    revoked_ms: int | None


@dataclass(frozen=True, slots=True)
class TokenMade:
    """The token is there."""


@dataclass(frozen=True, slots=True)
class TokenNameTaken:
    """A good token of the account has the name."""


@dataclass(frozen=True, slots=True)
class MakerEnded:
    """The maker's token was revoked or expired since it was looked at."""


@dataclass(frozen=True, slots=True)
class AccountUnknown:
    """There is no such account."""


class TokenStore:
    """Transactions on tokens made from tokens, and by operators."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(
        self, maker: Actor, token: NewToken, wanted: TokenRequest, now_ms: int
    ) -> TokenMade | TokenNameTaken | MakerEnded:
        """Make a token of the maker's account, if the maker is still good and the name free."""
        return await self._store.run(lambda db: _make(db, maker, token, wanted, now_ms))

    async def make_for(
        self, account: str, actor: Actor, token: NewToken, wanted: TokenRequest, now_ms: int
    ) -> TokenMade | TokenNameTaken | MakerEnded | AccountUnknown:
        """Make a token of any account that is no token's child, if its actor is still good."""

        def transaction(
            db: Database,
        ) -> TokenMade | TokenNameTaken | MakerEnded | AccountUnknown:
            if not is_good(db, actor.name, now_ms):
                return MakerEnded()
            if not db.execute("SELECT 1 FROM account WHERE name=?", (account,)).fetchone():
                return AccountUnknown()
            return _insert(db, token, wanted, actor, now_ms, account=account)

        return await self._store.run(transaction)

    async def all(self, account: str | None, now_ms: int, *, ended_too: bool) -> list[Token]:
        """Read tokens in the order of their making.

        Those of one account, of operators where it is empty, or of all where it is None; unless
        `ended_too`, only good ones.
        """
        sql = (
            f"SELECT {_COLUMNS} FROM token WHERE (?1 IS NULL OR coalesce(account, '') = ?1)"  # noqa: S608
            " AND (?2 OR (revoked_ms IS NULL AND (expire_ms IS NULL OR expire_ms > ?3)))"
            " ORDER BY created_ms, id"
        )
        values = (account, ended_too, now_ms)
        return await self._store.read(sql, values, _token)

    async def revoke(
        self,
        token_id: str,
        actor: Actor,
        now_ms: int,
        then: Callable[[list[str] | None], None] | None = None,
    ) -> list[str] | None:
        """End a token and all that were made from it; return whose end this was.

        None when there is no such token; empty when it had been revoked before. `then` is told
        the same once it is so, even when the caller is gone.
        """
        return await self._store.run(lambda db: _revoke(db, token_id, actor, now_ms), then)

    async def forget_ended(self, before_ms: int) -> int:
        """Remove tokens that were revoked or expired before a time; return how many.

        What was made from them ended no later, so that it goes in the same statement.
        """
        sql = "DELETE FROM token WHERE revoked_ms < ?1 OR expire_ms < ?1"
        return await self._store.run(lambda db: db.execute(sql, (before_ms,)).rowcount)


def _make(
    db: Database, maker: Actor, token: NewToken, wanted: TokenRequest, now_ms: int
) -> TokenMade | TokenNameTaken | MakerEnded:
    found = db.execute(
        "SELECT account, expire_ms FROM token WHERE id=?1 AND revoked_ms IS NULL"
        " AND (expire_ms IS NULL OR expire_ms > ?2)",
        (maker.name, now_ms),
    ).fetchone()
    if found is None:
        return MakerEnded()
    account, makers_expire_ms = found
    bounded = replace(wanted, expire_ms=earlier(wanted.expire_ms, makers_expire_ms))
    return _insert(db, token, bounded, maker, now_ms, account=account, parent=maker.name)


def _insert(
    db: Database,
    token: NewToken,
    wanted: TokenRequest,
    actor: Actor,
    now_ms: int,
    *,
    account: str | None,
    parent: str | None = None,
) -> TokenMade | TokenNameTaken:
    taken = db.execute(
        "SELECT 1 FROM token WHERE account IS ?1 AND name=?2 AND revoked_ms IS NULL"
        " AND (expire_ms IS NULL OR expire_ms > ?3)",
        (account, wanted.name, now_ms),
    )
    if taken.fetchone():
        return TokenNameTaken()
    scopes = sorted(wanted.scopes)
    db.execute(
        "INSERT INTO token(id, account, name, secret_hash, scopes, parent, created_ms, expire_ms)"
        " VALUES (?,?,?,?,?,?,?,?)",
        (
            token.token_id,
            account,
            wanted.name,
            token.secret_hash,
            json.dumps(scopes),
            parent,
            now_ms,
            wanted.expire_ms,
        ),
    )
    event = Event(now_ms, "token.created", account or "", actor, token.token_id)
    data = {"name": wanted.name, "scopes": scopes, "expire_ms": wanted.expire_ms}
    record_event(db, event, data)
    return TokenMade()


def _revoke(db: Database, token_id: str, actor: Actor, now_ms: int) -> list[str] | None:
    if db.execute("SELECT 1 FROM token WHERE id=?", (token_id,)).fetchone() is None:
        return None
    ended = db.execute(
        "WITH RECURSIVE family(id) AS (VALUES (?1)"
        " UNION SELECT token.id FROM token JOIN family ON token.parent = family.id)"
        " UPDATE token SET revoked_ms=?2 WHERE revoked_ms IS NULL"
        " AND id IN (SELECT id FROM family) RETURNING id, account",
        (token_id, now_ms),
    ).fetchall()
    for ended_id, account in ended:
        event = Event(now_ms, "token.revoked", account or "", actor, ended_id)
        record_event(db, event, {"with": token_id})
    return [ended_id for ended_id, _ in ended]


def _token(row: tuple[Any, ...]) -> Token:
    token_id, account, name, scopes, *rest = row
    return Token(token_id, account, name, tuple(json.loads(scopes)), *rest)
