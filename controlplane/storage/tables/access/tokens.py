"""API tokens in the database.

A token ends with its maker's: revoking updates every descendant in the same transaction, expiry
is bounded when a token is made. So a token's own row is enough to validate it.
"""

import json
from collections.abc import Collection
from typing import Any

from controlplane.domain.access.audit import INITIALISER, Actor
from controlplane.domain.access.tokens import NewToken, Scope, Token, TokenRequest, earlier
from controlplane.domain.errors import ConflictError, NotFoundError, UnauthorizedError
from controlplane.domain.events.accounts import TokenCreated, TokenRevoked
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION, remove_some, write_row
from controlplane.storage.tables.accounting.quota_use import has_account
from tiltyard.runtime.clock import from_ms, to_ms

GOOD = "revoked_ms IS NULL AND (expire_ms IS NULL OR expire_ms > :now)"
"""SQL condition of a good token at `:now`."""

MAX_ENDED_TOKENS = 1000  # As many are kept until their retention ends
MAX_GOOD_TOKENS = 1000  # Per account, and of operators: lists have no pages

_COLUMNS = (
    "id, account, name, scopes, parent, created_ms, expire_ms, last_used_ms, last_used_address,"
    " revoked_ms"
)


def make(
    db: Database,
    maker: Actor,
    token: NewToken,
    *,
    wanted: TokenRequest,
    now: float,
    account: str | None = None,
) -> None:
    """Make a token of the maker's account, which expires no later than the maker's.

    Of any `account`, if given, it is not the maker's child, and may expire later.

    Raises:
        UnauthorizedError: The maker's token was revoked or has expired.
        NotFoundError: There is no such account.
        ConflictError: A good token of the account has the name, or it has too many.
    """
    sql = f"SELECT account, :id, expire_ms FROM token WHERE id=:id AND {GOOD}"  # noqa: S608
    row = db.execute(sql, {"id": maker.name, "now": to_ms(now)}).fetchone()
    if row is None:
        raise UnauthorizedError
    if account is not None and not has_account(db, account):
        raise NotFoundError("account", account)
    owner, parent, latest_ms = row if account is None else (account, None, None)
    good = f"FROM token WHERE account IS NOT DISTINCT FROM :account AND {GOOD}"
    values = {"account": owner, "now": to_ms(now), "name": wanted.name}
    if db.execute(f"SELECT 1 {good} AND name=:name", values).fetchone():
        raise ConflictError("a token of that name exists already")
    if db.execute(f"SELECT count(*) {good}", values).fetchone()[0] >= MAX_GOOD_TOKENS:
        text = f"there are {MAX_GOOD_TOKENS} valid tokens already, the maximum"
        raise ConflictError(text)
    _remove_surplus(db, owner, now)
    expire = None if wanted.lifetime is None else now + wanted.lifetime
    insert_token(
        db,
        owner,
        token,
        wanted.scopes,
        now=now,
        name=wanted.name,
        actor=maker,
        parent=parent,
        expire=earlier(expire, from_ms(latest_ms)),
    )


def find(db: Database, account: str | None, now: float, *, ended_too: bool) -> list[Token]:
    """Read tokens in the order of creation; without `ended_too` only good ones.

    `account` is empty for those of operators, None for all.
    """
    owned = "TRUE" if account is None else "account IS NOT DISTINCT FROM :account"
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM token WHERE {owned}"  # noqa: S608
        f" AND (:ended_too OR ({GOOD})) ORDER BY created_ms, id",
        {"account": account or None, "now": to_ms(now), "ended_too": ended_too},
    )
    return [_token(row) for row in rows]


def revoke(db: Database, token_id: str, actor: Actor, now: float) -> list[str]:
    """Revoke a token and all made from it; return the ids that this revoked.

    Raises:
        NotFoundError: There is no such token.
    """
    if db.execute("SELECT 1 FROM token WHERE id=:id", {"id": token_id}).fetchone() is None:
        raise NotFoundError("token", token_id)
    ended = db.execute(
        "WITH RECURSIVE family(id) AS (VALUES (:id)"
        " UNION SELECT token.id FROM token JOIN family ON token.parent = family.id)"
        " UPDATE token SET revoked_ms=:now WHERE revoked_ms IS NULL"
        " AND id IN (SELECT id FROM family) RETURNING id, account",
        {"id": token_id, "now": to_ms(now)},
    ).fetchall()
    for ended_id, account in ended:
        db.changed(Topic.TOKEN, ended_id)
        db.append(TokenRevoked(account or "", ended_id, actor, now, revoked_with=token_id))
    return [ended_id for ended_id, _ in ended]


def is_good(db: Database, token_id: str, now: float) -> bool:
    """Return whether a token exists, not revoked and not expired."""
    sql = f"SELECT 1 FROM token WHERE id=:id AND {GOOD}"  # noqa: S608
    return db.execute(sql, {"id": token_id, "now": to_ms(now)}).fetchone() is not None


def good_of(db: Database, token_ids: Collection[str], now: float) -> set[str]:
    """Return which of these tokens exist, not revoked and not expired."""
    sql = f"SELECT id FROM token WHERE id {db.dialect.in_list('ids')} AND {GOOD}"  # noqa: S608
    values = {"ids": db.dialect.list_value(sorted(token_ids)), "now": to_ms(now)}
    return {token_id for (token_id,) in db.execute(sql, values)}


def insert_token(
    db: Database,
    account: str | None,
    token: NewToken,
    scopes: Collection[Scope],
    *,
    now: float,
    name: str = "initial",
    actor: Actor = INITIALISER,
    parent: str | None = None,
    expire: float | None = None,
) -> None:
    """Insert a token without any check."""
    scope_names = sorted(scopes)
    row = {
        "id": token.token_id,
        "account": account,
        "name": name,
        "secret_hash": token.secret_hash,
        "scopes": json.dumps(scope_names),
        "parent": parent,
        "created_ms": to_ms(now),
        "expire_ms": to_ms(expire),
    }
    write_row(db, "token", row)
    db.changed(Topic.TOKEN, token.token_id)
    db.append(
        TokenCreated(
            account or "",
            token.token_id,
            actor,
            now,
            name=name,
            scopes=scope_names,
            expires=to_ms(expire),
        )
    )


def remove_ended(db: Database, before: float) -> int:
    """Remove a portion of tokens revoked or expired before a time; return how many."""
    return remove_tokens(db, "(revoked_ms < :value OR expire_ms < :value)", to_ms(before))


def remove_tokens(db: Database, condition: str, value: int | str) -> int:
    """Remove a portion of tokens by a condition on `:value`; return how many.

    A token is removed after those made from it, which must match the condition, too.
    """
    made = "SELECT 1 FROM token AS child WHERE child.parent = token.id"
    removed = remove_some(db, "token", "id", f"{condition} AND NOT EXISTS ({made})", value=value)
    for (token_id,) in removed:
        db.changed(Topic.TOKEN, token_id)
    return len(removed)


def _remove_surplus(db: Database, account: str | None, now: float) -> None:
    """Remove the oldest of more than MAX_ENDED_TOKENS ended tokens, at most a portion.

    Called whenever an account makes a token, so that no flood can add more than are removed. A
    token is removed after those made from it.
    """
    values = {"account": account, "now": to_ms(now)}
    ended = f"account IS NOT DISTINCT FROM :account AND NOT ({GOOD})"
    count = f"SELECT count(*) FROM token WHERE {ended}"  # noqa: S608
    surplus = db.execute(count, values).fetchone()[0] - MAX_ENDED_TOKENS
    if surplus <= 0:
        return
    removed = db.execute(
        f"DELETE FROM token WHERE id IN (SELECT id FROM token WHERE {ended}"  # noqa: S608
        " AND NOT EXISTS (SELECT 1 FROM token AS child WHERE child.parent = token.id)"
        " ORDER BY coalesce(revoked_ms, expire_ms), id LIMIT :surplus) RETURNING id",
        values | {"surplus": min(surplus, PORTION)},
    ).fetchall()
    for (token_id,) in removed:
        db.changed(Topic.TOKEN, token_id)


def _token(row: tuple[Any, ...]) -> Token:
    token_id, account, name, scopes, parent, created, expire, used, address, revoked = row
    times = from_ms(created), from_ms(expire), from_ms(used)
    names = tuple(json.loads(scopes))
    return Token(token_id, account, name, names, parent, *times, address, from_ms(revoked))
