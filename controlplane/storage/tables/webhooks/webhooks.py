"""Webhooks in the database, as accounts configure them."""

import json
from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.errors import ConflictError, NotFoundError
from controlplane.domain.events.positions import Position
from controlplane.domain.events.webhooks import (
    WebhookChanged,
    WebhookCreated,
    WebhookDisabled,
    WebhookEnabled,
    WebhookRemoved,
    WebhookReplayed,
    WebhookRotated,
)
from controlplane.domain.webhooks.webhook import MAX_WEBHOOKS, DisabledCause, Webhook, host_of
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.event_log import position
from controlplane.storage.engine.statements import write_row
from controlplane.storage.tables.webhooks.progress import (
    begin_progress,
    drop_excluded,
    has_failed,
    retry_now,
    rewind,
)
from tiltyard.runtime.clock import from_ms, to_ms

_COLUMNS = "id, account, url, created_ms, description, filter, ordered, disabled, generation"
_CONFIGURED = ("url", "description", "kinds", "image", "location", "labels", "ordered")


@dataclass(frozen=True, slots=True)
class SealedSecrets:
    """The secrets of a webhook, the former one until a time in seconds since the epoch."""

    current: bytes
    former: bytes | None
    former_until: float | None


@dataclass(frozen=True, slots=True)
class WebhookState:
    """A webhook and how far it has come; times in seconds since the epoch.

    `failed` is the number of events that wait for another attempt, of which the first is at
    `next_attempt`. `former_until`: until when the former secret signs, too, if there is one.
    """

    webhook: Webhook
    position: Position
    failing_since: float | None
    former_until: float | None
    failed: int
    next_attempt: float | None


def create(db: Database, webhook: Webhook, sealed: bytes, *, actor: Actor) -> None:
    """Create a webhook, which delivers the events from now on.

    Raises:
        ConflictError: The account has too many.
    """
    sql = "SELECT count(*) FROM webhook WHERE account=:account"
    if db.execute(sql, {"account": webhook.account}).fetchone()[0] >= MAX_WEBHOOKS:
        raise ConflictError(f"the account has {MAX_WEBHOOKS} webhooks, the maximum")
    write_row(db, "webhook", _row(webhook) | {"sealed_secret": sealed})
    begin_progress(db, webhook.id, position(db))
    db.changed(Topic.WEBHOOK, webhook.id)
    host = host_of(webhook.url)
    db.append(WebhookCreated(webhook.account, webhook.id, actor, webhook.created, host=host))


def change(db: Database, wanted: Webhook, *, actor: Actor, now: float) -> None:
    """Replace the configuration of a webhook; failed events are attempted again at once.

    Failed events that the new filter excludes are not attempted any more.

    Raises:
        NotFoundError: The account has no such webhook.
    """
    known = get(db, wanted.account, wanted.id)
    fields = [name for name in _CONFIGURED if getattr(known, name) != getattr(wanted, name)]
    is_switched = known.is_enabled != wanted.is_enabled
    if not fields and not is_switched and not has_failed(db, known.id):
        return
    disabled = wanted.disabled if is_switched else known.disabled
    _write(db, replace(wanted, created=known.created, disabled=disabled), known.generation)
    subject = (known.account, known.id, actor, now)
    if fields:
        drop_excluded(db, wanted)
        db.append(WebhookChanged(*subject, fields=fields))
    if is_switched and wanted.is_enabled:
        db.append(WebhookEnabled(*subject))
    elif is_switched:
        db.append(WebhookDisabled(*subject, cause=DisabledCause.REQUESTED, status=None))
    retry_now(db, known.id, now)


def rotate(
    db: Database, key: tuple[str, str], sealed: bytes, *, until: float, actor: Actor, now: float
) -> None:
    """Set another secret of an account's webhook; the present one stays valid until a time.

    Failed events are attempted again at once: their endpoint may have had another secret.

    Raises:
        NotFoundError: The account has no such webhook.
    """
    account, webhook_id = key
    rotated = db.execute(
        "UPDATE webhook SET former_secret=sealed_secret, former_until_ms=:until,"
        " sealed_secret=:sealed, generation=generation+1 WHERE id=:id AND account=:account",
        {"until": to_ms(until), "sealed": sealed, "id": webhook_id, "account": account},
    )
    if not rotated.rowcount:
        raise NotFoundError("webhook", webhook_id)
    db.changed(Topic.WEBHOOK, webhook_id)
    db.append(WebhookRotated(account, webhook_id, actor, now, former_until=to_ms(until)))
    retry_now(db, webhook_id, now)


def replay(
    db: Database, key: tuple[str, str], first: Position, *, actor: Actor, now: float
) -> None:
    """Deliver the events of an account's webhook again, from one of them on.

    Raises:
        NotFoundError: The account has no such webhook.
    """
    known = get(db, *key)
    rewind(db, known, first)
    _write(db, known, known.generation)
    db.append(WebhookReplayed(*key, actor, now, from_event=str(first)))


def remove(db: Database, key: tuple[str, str], *, actor: Actor, now: float) -> None:
    """Remove an account's webhook. Upkeep removes what is left of it, in portions.

    Raises:
        NotFoundError: The account has no such webhook.
    """
    account, webhook_id = key
    sql = "DELETE FROM webhook WHERE id=:id AND account=:account"
    if not db.execute(sql, {"id": webhook_id, "account": account}).rowcount:
        raise NotFoundError("webhook", webhook_id)
    db.changed(Topic.WEBHOOK, webhook_id)
    db.append(WebhookRemoved(account, webhook_id, actor, now))


def get(db: Database, account: str, webhook_id: str) -> Webhook:
    """Read a webhook of an account.

    Raises:
        NotFoundError: The account has no such webhook.
    """
    sql = f"SELECT {_COLUMNS} FROM webhook WHERE id=:id AND account=:account"  # noqa: S608
    row = db.execute(sql, {"id": webhook_id, "account": account}).fetchone()
    if row is None:
        raise NotFoundError("webhook", webhook_id)
    return _webhook(row)


def states_of(db: Database, account: str | None, webhook_id: str = "") -> list[WebhookState]:
    """Read one webhook of an account, or all in the order of their creation, with their states.

    `account` is None for those of all accounts.
    """
    of_account = "TRUE" if account is None else "account=:account"
    columns = ", ".join(f"webhook.{column}" for column in _COLUMNS.split(", "))
    rows = db.execute(
        f"SELECT {columns}, epoch, number, failing_ms, former_until_ms,"  # noqa: S608
        " (SELECT count(*) FROM webhook_retry WHERE webhook_retry.webhook = webhook.id),"
        " (SELECT min(due_ms) FROM webhook_retry WHERE webhook_retry.webhook = webhook.id)"
        " FROM webhook JOIN webhook_progress ON webhook_progress.webhook = webhook.id"
        f" WHERE {of_account} AND (:id = '' OR webhook.id = :id)"
        " ORDER BY webhook.created_ms, webhook.id",
        {"account": account, "id": webhook_id},
    )
    return [_state(row) for row in rows]


def find(db: Database, ids: Collection[str] | None) -> list[Webhook]:
    """Read the webhooks that exist of some ids, or all of them."""
    sql = f"SELECT {_COLUMNS} FROM webhook"  # noqa: S608
    if ids is None:
        return [_webhook(row) for row in db.execute(sql)]
    values = {"ids": db.dialect.list_value(sorted(ids))}
    rows = db.execute(f"{sql} WHERE id {db.dialect.in_list('ids')}", values)
    return [_webhook(row) for row in rows]


def secrets_of(db: Database, webhook_id: str) -> SealedSecrets | None:
    """Read the secrets of a webhook; None if there is no such webhook."""
    row = db.execute(
        "SELECT sealed_secret, former_secret, former_until_ms FROM webhook WHERE id=:id",
        {"id": webhook_id},
    ).fetchone()
    return None if row is None else SealedSecrets(row[0], row[1], from_ms(row[2]))


def _write(db: Database, webhook: Webhook, generation: int) -> None:
    db.execute(
        "UPDATE webhook SET url=:url, description=:description, filter=:filter, ordered=:ordered,"
        " disabled=:disabled, generation=:generation WHERE id=:id",
        _row(replace(webhook, generation=generation + 1)),
    )
    db.changed(Topic.WEBHOOK, webhook.id)


def _row(webhook: Webhook) -> dict[str, Any]:
    chosen = {
        "kinds": webhook.kinds,
        "image": webhook.image,
        "location": webhook.location,
        "labels": dict(webhook.labels),
    }
    return {
        "id": webhook.id,
        "account": webhook.account,
        "url": webhook.url,
        "created_ms": to_ms(webhook.created),
        "description": webhook.description,
        "filter": json.dumps(chosen),
        "ordered": webhook.ordered,
        "disabled": webhook.disabled,
        "generation": webhook.generation,
    }


def _webhook(row: tuple[Any, ...]) -> Webhook:
    webhook_id, account, url, created, description, chosen, ordered, disabled, generation = row
    fields: dict[str, Any] = json.loads(chosen)
    return Webhook(
        id=webhook_id,
        account=account,
        url=url,
        created=from_ms(created),
        description=description,
        kinds=tuple(fields["kinds"]),
        image=fields["image"],
        location=fields["location"],
        labels=fields["labels"],
        ordered=bool(ordered),
        disabled=None if disabled is None else DisabledCause(disabled),
        generation=generation,
    )


def _state(row: tuple[Any, ...]) -> WebhookState:
    *columns, epoch, number, failing_ms, former_until_ms, failed, due_ms = row
    return WebhookState(
        _webhook(tuple(columns)),
        Position(epoch, number),
        from_ms(failing_ms),
        from_ms(former_until_ms),
        failed,
        from_ms(due_ms),
    )
