"""Accounts and their callers in the database."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.quotas import UNLIMITED, Quota, Usage
from controlplane.domain.tokens import ACCOUNT_SCOPES, OPERATOR_SCOPES, NewToken, Scope
from controlplane.storage.engine.statements import remove_some
from controlplane.storage.engine.store import Actor, Database, record_event
from controlplane.storage.tables.quota_use import POOLS, has_account
from controlplane.storage.tables.session_rows import remove_sessions
from controlplane.storage.tables.tokens import GOOD, insert_token, remove_tokens
from tiltyard.runtime.clock import from_ms, to_ms

_OF_AN_ACCOUNT = ("session", "warm_pool", "tag", "application", "token")
"""Tables removed with their account; referencing tables first."""


@dataclass(frozen=True, slots=True)
class Caller:
    """The sender of a request; `account` is empty for an operator.

    `expire` is the token's expiry in Unix time, None for never.
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
class StoredToken:
    """A token in the database; `caller` is without an address."""

    secret_hash: bytes = field(repr=False)
    caller: Caller
    is_revoked: bool
    last_used: float | None

    def is_good(self, now: float) -> bool:
        """Return whether it is neither revoked nor expired."""
        expire = self.caller.expire
        return not self.is_revoked and (expire is None or expire > now)


@dataclass(frozen=True, slots=True)
class Account:
    """An account with its quota and usage."""

    name: str
    created: float
    quota: Quota
    usage: Usage


def create_operator_token(db: Database, token: NewToken, now: float, *, another: bool) -> bool:
    """Create the first operator token, or `another`; False if one exists already.

    It has no parent: no other token's revocation ends it.
    """
    if not db.execute("SELECT 1 FROM token WHERE account IS NULL LIMIT 1").fetchone():
        insert_token(db, None, token, OPERATOR_SCOPES, now=now)
        return True
    if another:
        insert_token(db, None, token, OPERATOR_SCOPES, now=now, name=f"init-{token.token_id}")
    return another


def create_account(
    db: Database, name: str, token: NewToken, *, actor: Actor, now: float, quota: Quota = UNLIMITED
) -> bool:
    """Create an account with its first token; False if it exists."""
    inserted = db.execute(
        "INSERT OR IGNORE INTO account(name, created_ms, quota_sessions, quota_nano_cpus,"
        " quota_memory_bytes) VALUES (:name, :now, :sessions, :nano_cpus, :memory_bytes)",
        {"name": name, "now": to_ms(now), **asdict(quota)},
    )
    if inserted.rowcount == 0:
        return False
    record_event(db, "account.created", name, name, actor=actor, now=now, quota=asdict(quota))
    insert_token(db, name, token, ACCOUNT_SCOPES, now=now, actor=actor)
    return True


def names(db: Database) -> list[str]:
    """Read the names of all accounts, also of those being removed."""
    return [name for (name,) in db.execute("SELECT name FROM account ORDER BY name")]


def find(db: Database) -> list[Account]:
    """Read all accounts by name."""
    rows = db.execute(
        "SELECT name, account.created_ms, quota_sessions, quota_nano_cpus, quota_memory_bytes,"  # noqa: S608
        " count(id), coalesce(sum(nano_cpus), 0), coalesce(sum(memory_bytes), 0),"
        f" (SELECT nano_cpus FROM ({POOLS}account.name)),"
        f" (SELECT memory_bytes FROM ({POOLS}account.name))"
        " FROM account LEFT JOIN session ON session.account = name AND ended_ms IS NULL"
        " WHERE removed_ms IS NULL GROUP BY name ORDER BY name"
    )
    return [_account(row) for row in rows]


def replace_quota(db: Database, name: str, quota: Quota, *, actor: Actor, now: float) -> None:
    """Replace an account's quota, from its next start on.

    Raises:
        NotFoundError: There is no such account.
    """
    changed = db.execute(
        "UPDATE account SET quota_sessions=:sessions, quota_nano_cpus=:nano_cpus,"
        " quota_memory_bytes=:memory_bytes WHERE name=:name AND removed_ms IS NULL",
        {"name": name, **asdict(quota)},
    )
    if not changed.rowcount:
        raise NotFoundError("account", name)
    record_event(db, "account.changed", name, name, actor=actor, now=now, quota=asdict(quota))


def remove(db: Database, name: str, actor: Actor, now: float) -> list[str]:
    """Mark an account as removed and revoke its tokens; return their ids.

    `remove_portion` removes its rows, except audit lines.

    Raises:
        NotFoundError: There is no such account.
        ConflictError: It has a live session or a start.
    """
    if not has_account(db, name):
        raise NotFoundError("account", name)
    # A start under way holds a row, so that it is counted, too.
    live = "SELECT 1 FROM session WHERE account=? AND ended_ms IS NULL LIMIT 1"
    if db.execute(live, (name,)).fetchone():
        raise ConflictError("the account has live sessions")
    values = {"name": name, "now": to_ms(now)}
    ended = db.execute(
        f"UPDATE token SET revoked_ms=:now WHERE account=:name AND {GOOD} RETURNING id",  # noqa: S608
        values,
    ).fetchall()
    db.execute("UPDATE account SET removed_ms=:now WHERE name=:name", values)
    record_event(db, "account.removed", name, name, actor=actor, now=now, tokens=len(ended))
    return [token_id for (token_id,) in ended]


def remove_portion(db: Database, name: str) -> int:
    """Remove a portion of a removed account's rows, its own last; 0 when done.

    Each portion starts at the first table: a call let in before the removal may have added rows.
    """
    removed = "SELECT 1 FROM account WHERE name=? AND removed_ms IS NOT NULL"
    if not db.execute(removed, (name,)).fetchone():
        return 0
    if any(_remove_rows(db, table, name) for table in _OF_AN_ACCOUNT):
        return 1
    # Hosts may still have its images, and are asked to remove them.
    db.execute("UPDATE OR REPLACE image SET account='' WHERE account=?", (name,))
    db.execute("DELETE FROM account WHERE name=?", (name,))
    return 0


def remove_left(db: Database, before: float) -> int:
    """Remove a portion of the rows of accounts removed before a time."""
    sql = "SELECT name FROM account WHERE removed_ms <= ? LIMIT 1"
    row = db.execute(sql, (to_ms(before),)).fetchone()
    if row is None:
        return 0
    remove_portion(db, row[0])
    return 1


def find_token(db: Database, token_id: str) -> StoredToken | None:
    """Read a token by its id."""
    row = db.execute(
        "SELECT secret_hash, account, scopes, expire_ms, revoked_ms, last_used_ms"
        " FROM token WHERE id=?",
        (token_id,),
    ).fetchone()
    if row is None:
        return None
    secret_hash, account, scopes, expire_ms, revoked_ms, last_used_ms = row
    held = frozenset(Scope(scope) for scope in json.loads(scopes))
    caller = Caller(account or "", token_id, held, expire=from_ms(expire_ms))
    return StoredToken(secret_hash, caller, revoked_ms is not None, from_ms(last_used_ms))


def note_use(db: Database, caller: Caller, now: float) -> None:
    """Note the last use of a token."""
    db.execute(
        "UPDATE token SET last_used_ms=:now, last_used_address=:address WHERE id=:id",
        {"now": to_ms(now), "address": caller.address, "id": caller.token_id},
    )


def _account(row: tuple[Any, ...]) -> Account:
    used = Usage(row[5], row[6] + row[8], row[7] + row[9])
    return Account(row[0], from_ms(row[1]), Quota(*row[2:5]), used)


def _remove_rows(db: Database, table: str, account: str) -> int:
    condition = "account = :value"
    if table == "session":
        return remove_sessions(db, condition, account)
    if table == "token":
        return remove_tokens(db, condition, account)
    return remove_some(db, table, condition, account)
