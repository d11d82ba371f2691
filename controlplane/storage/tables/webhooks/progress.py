"""The progress of webhooks in the database.

Nothing is written before an attempt: after a crash, the events whose attempts were not recorded
are delivered once more.
"""

import json
from dataclasses import asdict, replace

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.positions import Position
from controlplane.domain.events.webhooks import WebhookDisabled, WebhookGap
from controlplane.domain.webhooks.attempts import GAP, FailedEvent, Gap, Progress, Result
from controlplane.domain.webhooks.retries import Disable, Done, GiveUp
from controlplane.domain.webhooks.webhook import DisabledCause, Webhook
from controlplane.storage.engine.changes import Topic
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import write_row
from controlplane.storage.tables.accounting.event_reading import events_numbered
from controlplane.storage.tables.webhooks.attempts import record_attempt
from tiltyard.runtime.clock import from_ms, to_ms


def begin_progress(db: Database, webhook_id: str, position: Position) -> None:
    """Let a new webhook deliver what comes after a position."""
    row = {"webhook": webhook_id, "epoch": position.epoch, "number": position.number}
    write_row(db, "webhook_progress", row)


def progress_of(db: Database, webhook_id: str) -> Progress | None:
    """Read how far a webhook has come; None if there is no such webhook."""
    row = db.execute(
        "SELECT epoch, number, failing_ms, gap FROM webhook_progress WHERE webhook=:webhook",
        {"webhook": webhook_id},
    ).fetchone()
    if row is None:
        return None
    epoch, number, failing_ms, gap = row
    failed = db.execute(
        "SELECT number, attempts, began_ms, due_ms FROM webhook_retry WHERE webhook=:webhook"
        " ORDER BY number",
        {"webhook": webhook_id},
    ).fetchall()
    return Progress(
        Position(epoch, number),
        from_ms(failing_ms),
        None if gap is None else Gap(**json.loads(gap), number=_gap_number(db, webhook_id)),
        {number: FailedEvent(number, *_failed(times)) for number, *times in failed},
    )


def record_result(db: Database, result: Result, now: float) -> bool:
    """Record an attempt, and what follows from it; return whether the webhook goes on as before.

    If the webhook was changed during the attempt, the attempt alone is recorded: the event is
    delivered as the webhook is now.
    """
    if not record_attempt(db, result.webhook, result.attempt):
        return False
    account = _account_of(db, result.webhook, result.generation)
    if account is None:
        return False
    is_done = isinstance(result.decision, Done)
    _write_failed(db, result)
    db.execute(
        "UPDATE webhook_progress SET epoch=:epoch, number=:number, failing_ms=CASE WHEN :done"
        " THEN NULL ELSE coalesce(failing_ms, :now) END WHERE webhook=:webhook",
        {
            "epoch": result.position.epoch,
            "number": result.position.number,
            "done": is_done,
            "now": to_ms(now),
            "webhook": result.webhook,
        },
    )
    is_given_up = isinstance(result.decision, GiveUp)
    if result.gap is not None and (is_done or is_given_up):
        # A gap that was noted during the attempt stays for a further message.
        sql = "UPDATE webhook_progress SET gap=NULL WHERE webhook=:webhook AND gap=:gap"
        db.execute(sql, {"webhook": result.webhook, "gap": _gap_json(result.gap)})
    elif is_given_up:
        given_up = str(Position(result.position.epoch, result.number))
        add_gap(db, account, result.webhook, Gap(given_up, given_up, "failed", now))
    if isinstance(result.decision, Disable):
        _disable(db, account, result, now)
        return False
    return True


def save_position(db: Database, webhook: Webhook, position: Position) -> None:
    """Note that a webhook delivers nothing up to a position that it has not delivered."""
    if _account_of(db, webhook.id, webhook.generation) is not None:
        _set_position(db, webhook.id, position)


def pass_gap(db: Database, webhook: Webhook, gap: Gap, resume: Position) -> bool:
    """Record a gap, and let a webhook go on after it; False if the webhook was changed."""
    if _account_of(db, webhook.id, webhook.generation) is None:
        return False
    _set_position(db, webhook.id, resume)
    add_gap(db, webhook.account, webhook.id, gap)
    return True


def drop_event(db: Database, webhook: Webhook, number: int, gap: Gap) -> bool:
    """Record that a failed event was removed from the log before it was delivered."""
    if _account_of(db, webhook.id, webhook.generation) is None:
        return False
    sql = "DELETE FROM webhook_retry WHERE webhook=:webhook AND number=:number"
    db.execute(sql, {"webhook": webhook.id, "number": number})
    add_gap(db, webhook.account, webhook.id, gap)
    return True


def add_gap(db: Database, account: str, webhook_id: str, gap: Gap) -> None:
    """Note a gap that the endpoint is notified of, together with one that it was not yet."""
    db.append(
        WebhookGap(
            account,
            webhook_id,
            ITSELF,
            gap.time,
            first=gap.first,
            last=gap.last,
            cause=gap.cause,
        )
    )
    values = {"webhook": webhook_id}
    sql = "SELECT gap FROM webhook_progress WHERE webhook=:webhook"
    row = db.execute(sql, values).fetchone()
    if row is not None and row[0] is not None:
        gap = replace(gap, first=json.loads(row[0])["first"])
    db.execute(
        "UPDATE webhook_progress SET gap=:gap WHERE webhook=:webhook",
        values | {"gap": _gap_json(gap)},
    )


def has_failed(db: Database, webhook_id: str) -> bool:
    """Return whether events wait for another attempt."""
    row = db.execute(
        "SELECT 1 FROM webhook_retry WHERE webhook=:webhook LIMIT 1", {"webhook": webhook_id}
    ).fetchone()
    return row is not None


def retry_now(db: Database, webhook_id: str, now: float) -> None:
    """Let all failed events be attempted now, as if none had failed."""
    values = {"webhook": webhook_id, "now": to_ms(now)}
    db.execute(
        "UPDATE webhook_retry SET attempts=0, began_ms=:now, due_ms=:now WHERE webhook=:webhook",
        values,
    )
    db.execute("UPDATE webhook_progress SET failing_ms=NULL WHERE webhook=:webhook", values)


def drop_excluded(db: Database, webhook: Webhook) -> None:
    """Forget the failed events that the filter of a webhook excludes: they are not delivered."""
    progress = progress_of(db, webhook.id)
    assert progress is not None, "each webhook has one"
    wanted = webhook.filter
    failed = events_numbered(db, progress.position.epoch, list(progress.failed))
    excluded = [event.position.number for event in failed if not wanted.matches(event)]
    db.execute(
        "DELETE FROM webhook_retry WHERE webhook=:webhook"  # noqa: S608
        f" AND number {db.dialect.in_list('numbers')}",
        {"webhook": webhook.id, "numbers": db.dialect.list_value(excluded)},
    )


def rewind(db: Database, webhook: Webhook, first: Position) -> None:
    """Let a webhook continue with an event: an earlier one, or a later one.

    Failed events from there on are delivered in their turn. Earlier ones are still attempted,
    except if the webhook is ordered.
    """
    after = {"epoch": first.epoch, "number": first.number - 1, "webhook": webhook.id}
    db.execute(
        "UPDATE webhook_progress SET epoch=:epoch, number=:number, failing_ms=NULL"
        " WHERE webhook=:webhook",
        after,
    )
    db.execute(
        "DELETE FROM webhook_retry WHERE webhook=:webhook AND number > :least",
        {"webhook": webhook.id, "least": GAP if webhook.ordered else first.number - 1},
    )


def _account_of(db: Database, webhook_id: str, generation: int) -> str | None:
    """Return the account of a webhook; None if the webhook was changed or removed meanwhile."""
    row = db.execute(
        "SELECT account FROM webhook WHERE id=:webhook AND generation=:generation",
        {"webhook": webhook_id, "generation": generation},
    ).fetchone()
    return None if row is None else str(row[0])


def _set_position(db: Database, webhook_id: str, position: Position) -> None:
    db.execute(
        "UPDATE webhook_progress SET epoch=:epoch, number=:number WHERE webhook=:webhook",
        {"epoch": position.epoch, "number": position.number, "webhook": webhook_id},
    )


def _write_failed(db: Database, result: Result) -> None:
    if result.failed is None:
        db.execute(
            "DELETE FROM webhook_retry WHERE webhook=:webhook AND number=:number",
            {"webhook": result.webhook, "number": result.number},
        )
        return
    row = {
        "webhook": result.webhook,
        "number": result.number,
        "attempts": result.failed.attempts,
        "began_ms": to_ms(result.failed.began),
        "due_ms": to_ms(result.failed.due),
    }
    write_row(db, "webhook_retry", row, "webhook, number")


def _disable(db: Database, account: str, result: Result, now: float) -> None:
    assert isinstance(result.decision, Disable)
    cause: DisabledCause = result.decision.cause
    db.execute(
        "UPDATE webhook SET disabled=:cause, generation=generation+1 WHERE id=:webhook",
        {"cause": cause, "webhook": result.webhook},
    )
    db.changed(Topic.WEBHOOK, result.webhook)
    status = result.attempt.answer.status
    db.append(WebhookDisabled(account, result.webhook, ITSELF, now, cause=cause, status=status))


def _gap_json(gap: Gap) -> str:
    fields = asdict(gap)
    del fields["number"]
    return json.dumps(fields)


def _gap_number(db: Database, webhook_id: str) -> int:
    """Return the number of the newest event about a gap of a webhook, 0 if it was removed."""
    sql = "SELECT coalesce(max(sequence), 0) FROM event WHERE object=:webhook AND kind=:kind"
    row = db.execute(sql, {"webhook": webhook_id, "kind": WebhookGap.kind}).fetchone()
    return int(row[0])


def _failed(times: list[int]) -> tuple[int, float, float]:
    attempts, began_ms, due_ms = times
    return attempts, from_ms(began_ms), from_ms(due_ms)
