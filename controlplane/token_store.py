"""API tokens that were made from others, in the database.

A token whose maker was revoked or has expired is revoked or expired itself: revoking writes it to
every descendant in the same transaction, expiry is bounded when a token is made. So a look at a
token's own row is enough to tell whether it is good.
"""

import json
from dataclasses import dataclass

from sqlite_utils import Database

from controlplane.store import Actor, Event, Store, record_event
from controlplane.tokens import NewToken, Scope, earlier


@dataclass(frozen=True, slots=True)
class TokenRequest:
    """A token that a caller wants; `expire_ms` is None when it named no time."""

    name: str
    scopes: frozenset[Scope]
    expire_ms: int | None


@dataclass(frozen=True, slots=True)
class TokenMade:
    """The token is there."""


@dataclass(frozen=True, slots=True)
class TokenNameTaken:
    """A good token of the account has the name."""


@dataclass(frozen=True, slots=True)
class MakerEnded:
    """The maker's token was revoked or expired since it was looked at."""


class TokenStore:
    """Transactions on tokens made from tokens."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def make(
        self, maker: Actor, token: NewToken, wanted: TokenRequest, now_ms: int
    ) -> TokenMade | TokenNameTaken | MakerEnded:
        """Make a token of the maker's account, if the maker is still good and the name free."""
        return await self._store.run(lambda db: _make(db, maker, token, wanted, now_ms))

    async def revoke(self, token_id: str, actor: Actor, now_ms: int) -> list[str] | None:
        """End a token and all that were made from it; return whose end this was.

        None when there is no such token; empty when it had been revoked before.
        """
        return await self._store.run(lambda db: _revoke(db, token_id, actor, now_ms))


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
    taken = db.execute(
        "SELECT 1 FROM token WHERE account IS ?1 AND name=?2 AND revoked_ms IS NULL"
        " AND (expire_ms IS NULL OR expire_ms > ?3)",
        (account, wanted.name, now_ms),
    )
    if taken.fetchone():
        return TokenNameTaken()
    expire_ms = earlier(wanted.expire_ms, makers_expire_ms)
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
            maker.name,
            now_ms,
            expire_ms,
        ),
    )
    event = Event(now_ms, "token.created", account or "", maker, token.token_id)
    record_event(db, event, {"name": wanted.name, "scopes": scopes, "expire_ms": expire_ms})
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
