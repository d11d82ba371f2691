"""Accounts and their callers in the database."""

import json
from dataclasses import asdict
from typing import Any

from controlplane.domain.access.accounts import Account
from controlplane.domain.access.audit import Actor
from controlplane.domain.access.callers import Caller, StoredToken
from controlplane.domain.access.quotas import UNLIMITED, Quota, Usage
from controlplane.domain.access.tokens import ACCOUNT_SCOPES, OPERATOR_SCOPES, NewToken, Scope
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.events.accounts import (
    AccountChanged,
    AccountCreated,
    AccountRemoved,
    QuotaLimits,
)
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import remove_some
from controlplane.storage.tables.access.tokens import GOOD, insert_token, remove_tokens
from controlplane.storage.tables.accounting.event_retention import hide_all
from controlplane.storage.tables.accounting.quota_use import POOLS, has_account
from controlplane.storage.tables.sessions.session_rows import remove_sessions
from tiltyard.runtime.clock import from_ms, to_ms

_OF_AN_ACCOUNT = ("session", "warm_pool", "tag", "application", "webhook", "token")
"""Tables removed with their account; referencing tables first."""

_KEYS = {
    "warm_pool": (Topic.POOL, "account, application, location"),
    "tag": (Topic.TAG, "account, application, name"),
    "application": (Topic.APPLICATION, "account, name"),
    "webhook": (Topic.WEBHOOK, "id"),
}


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
        "INSERT INTO account(name, created_ms, quota_sessions, quota_nano_cpus,"
        " quota_memory_bytes) VALUES (:name, :now, :sessions, :nano_cpus, :memory_bytes)"
        " ON CONFLICT DO NOTHING",
        {"name": name, "now": to_ms(now), **asdict(quota)},
    )
    if inserted.rowcount == 0:
        return False
    db.changed(Topic.ACCOUNT, name)
    db.append(AccountCreated(name, name, actor, now, quota=QuotaLimits.of(quota)))
    insert_token(db, name, token, ACCOUNT_SCOPES, now=now, actor=actor)
    return True


def names(db: Database) -> list[str]:
    """Read the names of all accounts, also of those being removed."""
    return [name for (name,) in db.execute("SELECT name FROM account ORDER BY name")]


def find(db: Database) -> list[Account]:
    """Read all accounts by name."""
    rows = db.execute(
        "SELECT name, account.created_ms, quota_sessions, quota_nano_cpus, quota_memory_bytes,"  # noqa: S608
        " count(number), coalesce(sum(nano_cpus), 0), coalesce(sum(memory_bytes), 0),"
        f" (SELECT nano_cpus FROM ({POOLS}account.name) AS used),"
        f" (SELECT memory_bytes FROM ({POOLS}account.name) AS used)"
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
    db.changed(Topic.ACCOUNT, name)
    db.append(AccountChanged(name, name, actor, now, quota=QuotaLimits.of(quota)))


def remove(db: Database, name: str, actor: Actor, now: float) -> None:
    """Mark an account as removed and revoke its tokens.

    `remove_portion` removes its rows, except audit lines.

    Raises:
        NotFoundError: There is no such account.
        ConflictError: It has a live session or a start.
    """
    if not has_account(db, name):
        raise NotFoundError("account", name)
    # A start under way holds a row, so that it is counted, too.
    live = "SELECT 1 FROM session WHERE account=:name AND ended_ms IS NULL LIMIT 1"
    if db.execute(live, {"name": name}).fetchone():
        raise ConflictError("the account has live sessions")
    values = {"name": name, "now": to_ms(now)}
    ended = db.execute(
        f"UPDATE token SET revoked_ms=:now WHERE account=:name AND {GOOD} RETURNING id",  # noqa: S608
        values,
    ).fetchall()
    db.execute("UPDATE account SET removed_ms=:now WHERE name=:name", values)
    for (token_id,) in ended:
        db.changed(Topic.TOKEN, token_id)
    db.changed(Topic.ACCOUNT, name)
    db.append(AccountRemoved(name, name, actor, now, tokens=len(ended)))


def remove_portion(db: Database, name: str) -> int:
    """Remove a portion of a removed account's rows, its own last; 0 when done.

    Each portion starts at the first table: a call let in before the removal may have added rows.
    """
    values = {"name": name}
    removed = "SELECT 1 FROM account WHERE name=:name AND removed_ms IS NOT NULL"
    if not db.execute(removed, values).fetchone():
        return 0
    if any(_remove_rows(db, table, name) for table in _OF_AN_ACCOUNT):
        return 1
    # Hosts may still have its images, and are asked to remove them.
    db.execute(
        "INSERT INTO image(reference, account) SELECT reference, '' FROM image"
        " WHERE account=:name ON CONFLICT DO NOTHING",
        values,
    )
    db.execute("DELETE FROM image WHERE account=:name", values)
    db.execute("DELETE FROM account WHERE name=:name", values)
    hide_all(db, name)
    db.changed(Topic.ACCOUNT, name)
    return 0


def remove_left(db: Database, before: float) -> int:
    """Remove a portion of the rows of accounts removed before a time."""
    sql = "SELECT name FROM account WHERE removed_ms <= :before LIMIT 1"
    row = db.execute(sql, {"before": to_ms(before)}).fetchone()
    if row is None:
        return 0
    remove_portion(db, row[0])
    return 1


def find_token(db: Database, token_id: str) -> StoredToken | None:
    """Read a token by its id."""
    row = db.execute(
        "SELECT secret_hash, account, scopes, expire_ms, revoked_ms, last_used_ms"
        " FROM token WHERE id=:id",
        {"id": token_id},
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
    db.changed(Topic.TOKEN, caller.token_id)


def _account(row: tuple[Any, ...]) -> Account:
    used = Usage(row[5], row[6] + row[8], row[7] + row[9])
    return Account(row[0], from_ms(row[1]), Quota(*row[2:5]), used)


def _remove_rows(db: Database, table: str, account: str) -> int:
    condition = "account = :value"
    if table == "session":
        return remove_sessions(db, condition, account)
    if table == "token":
        return remove_tokens(db, condition, account)
    topic, key = _KEYS[table]
    removed = remove_some(db, table, key, condition, value=account)
    for values in removed:
        # The tags of an application are one list.
        changed = values[:2] if topic is Topic.TAG else values
        db.changed(topic, *changed)
    return len(removed)
