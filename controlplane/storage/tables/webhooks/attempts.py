"""Attempts of webhooks in the database: the newest of each, and its failures of a day."""

from typing import Any

from controlplane.domain.webhooks.attempts import Answer, Attempt
from controlplane.domain.webhooks.retries import Outcome
from controlplane.storage.engine.database import Database
from controlplane.storage.engine.statements import PORTION, remove_some, write_row
from tiltyard.runtime.clock import from_ms, to_ms

KEPT = 1000  # Attempts of a webhook, whatever their outcome
FAILURES_KEPT = 3000  # Of its newest attempts, failed ones stay for a day
FAILURE_SECONDS = 24 * 3600.0
_STEP = 100  # Attempts after which surplus ones are removed

_COLUMNS = "number, event, kind, time_ms, duration_ms, outcome, status, error, answer"


def record_attempt(db: Database, webhook_id: str, attempt: Attempt) -> int:
    """Record an attempt that has ended; return its number, 0 if the webhook was removed."""
    row = db.execute(
        "UPDATE webhook_progress SET attempts=attempts+1 WHERE webhook=:webhook"
        " AND EXISTS (SELECT 1 FROM webhook WHERE id=:webhook) RETURNING attempts",
        {"webhook": webhook_id},
    ).fetchone()
    if row is None:
        return 0
    number = int(row[0])
    answer = attempt.answer
    written = {
        "webhook": webhook_id,
        "number": number,
        "event": attempt.event,
        "kind": attempt.kind,
        "time_ms": to_ms(attempt.time),
        "duration_ms": to_ms(answer.seconds),
        "outcome": answer.outcome,
        "status": answer.status,
        "error": answer.error,
        "answer": answer.text,
    }
    write_row(db, "webhook_attempt", written)
    if number % _STEP == 0:
        _remove_surplus(db, webhook_id, number, before=attempt.time - FAILURE_SECONDS)
    return number


def find_attempts(
    db: Database, webhook_id: str, *, before: int | None, limit: int, failed: bool
) -> list[Attempt]:
    """Read attempts of a webhook, the newest first, up to a number; with `failed`, no others."""
    rows = db.execute(
        f"SELECT {_COLUMNS} FROM webhook_attempt WHERE webhook=:webhook AND number < :before"  # noqa: S608
        " AND (NOT :failed OR outcome <> :delivered) ORDER BY number DESC LIMIT :limit",
        {
            "webhook": webhook_id,
            "before": 2**63 - 1 if before is None else before,
            "failed": failed,
            "delivered": Outcome.DELIVERED,
            "limit": limit,
        },
    )
    return [_attempt(row) for row in rows]


def remove_old_failures(db: Database, before: float) -> int:
    """Remove a portion of the failures from before a time that are not among the newest."""
    of = db.dialect.without_index("webhook_progress.webhook")
    old = (
        "SELECT webhook_attempt.webhook, webhook_attempt.number FROM webhook_progress"  # noqa: S608
        f" JOIN webhook_attempt ON webhook_attempt.webhook = {of}"
        " AND webhook_attempt.number <= webhook_progress.attempts - :kept"
        " WHERE time_ms < :before LIMIT :portion"
    )
    removed = db.execute(
        f"DELETE FROM webhook_attempt WHERE (webhook, number) IN ({old})",  # noqa: S608
        {"kept": KEPT, "before": to_ms(before), "portion": PORTION},
    )
    return removed.rowcount


def remove_orphans(db: Database, _before: float) -> int:
    """Remove a portion of the rows of a webhook that was removed; 0 if none is left."""
    row = db.execute(
        "SELECT webhook FROM webhook_progress WHERE NOT EXISTS"
        " (SELECT 1 FROM webhook WHERE webhook.id = webhook_progress.webhook) LIMIT 1"
    ).fetchone()
    if row is None:
        return 0
    for table in ("webhook_attempt", "webhook_retry"):
        if remove_some(db, table, "webhook, number", "webhook = :value", value=row[0]):
            return 1
    db.execute("DELETE FROM webhook_progress WHERE webhook=:webhook", {"webhook": row[0]})
    return 1


def _remove_surplus(db: Database, webhook_id: str, newest: int, *, before: float) -> None:
    db.execute(
        "DELETE FROM webhook_attempt WHERE webhook=:webhook AND (number <= :oldest_failure"
        " OR number <= :oldest AND (outcome = :delivered OR time_ms < :before))",
        {
            "webhook": webhook_id,
            "oldest_failure": newest - FAILURES_KEPT,
            "oldest": newest - KEPT,
            "delivered": Outcome.DELIVERED,
            "before": to_ms(before),
        },
    )


def _attempt(row: tuple[Any, ...]) -> Attempt:
    number, event, kind, time_ms, duration_ms, outcome, status, error, text = row
    answer = Answer(Outcome(outcome), from_ms(duration_ms), status, error, text)
    return Attempt(event, kind, from_ms(time_ms), answer, number)
