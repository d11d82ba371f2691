"""Calls of all functions of the tables of webhooks."""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from controlplane.domain.access.audit import Actor
from controlplane.domain.events.positions import Position
from controlplane.domain.webhooks.attempts import (
    GAP,
    Answer,
    Attempt,
    FailedEvent,
    Gap,
    Result,
)
from controlplane.domain.webhooks.retries import Decision, Disable, Done, GiveUp, Outcome, Retry
from controlplane.domain.webhooks.webhook import DisabledCause, Webhook
from controlplane.storage.engine.database import Database
from controlplane.storage.tables.webhooks import attempts, progress, webhooks

Do = Callable[[Database], object]

NOW = 1000.0
ACTOR = Actor("operator")
AT: Any = {"actor": ACTOR, "now": NOW}
KEY = ("alice", "w")
WEBHOOK = Webhook("w", "alice", "https://hooks.example/", NOW)
OTHER = replace(WEBHOOK, id="v")
UNORDERED = replace(WEBHOOK, ordered=False)
FIRST = Position(1, 1)
LOST = Gap("1-1", "1-2", "retention", NOW)
DELIVERED = Attempt("1-1", "session.ready", NOW, Answer(Outcome.DELIVERED, 0.25, 204))
FAILED = Attempt("1-1", "session.ready", NOW, Answer(Outcome.REJECTED, 0.25, 500, text="no"))


def result(
    decision: Decision,
    *,
    number: int = 1,
    generation: int = 1,
    attempt: Attempt = FAILED,
    position: Position = FIRST,
    failed: FailedEvent | None = None,
    gap: Gap | None = None,
) -> Result:
    """Return the result of an attempt of WEBHOOK."""
    return Result("w", generation, number, attempt, decision, position, failed, gap)


RETRIED = result(Retry(5.0), failed=FailedEvent(1, 1, NOW, NOW + 5))
GONE = result(Disable(DisabledCause.GONE), failed=FailedEvent(1, 1, NOW, NOW))


def created(db: Database) -> None:
    webhooks.create(db, WEBHOOK, b"sealed", actor=ACTOR)


def create_another(db: Database) -> None:
    webhooks.create(db, OTHER, b"sealed", actor=ACTOR)


def failing(db: Database) -> None:
    created(db)
    progress.record_result(db, RETRIED, NOW)


def with_gap(db: Database) -> None:
    created(db)
    progress.pass_gap(db, WEBHOOK, LOST, FIRST)


def with_many_attempts(db: Database) -> None:
    created(db)
    for _ in range(100):
        attempts.record_attempt(db, "w", DELIVERED)


def orphaned(db: Database) -> None:
    failing(db)
    webhooks.remove(db, KEY, **AT)


CHANGES: list[tuple[str, Do, Do]] = [
    ("webhook", created, create_another),
    ("change webhook", created, lambda db: webhooks.change(db, UNORDERED, **AT)),
    ("rotate", created, lambda db: webhooks.rotate(db, KEY, b"x", until=NOW + 1, **AT)),
    ("replay", failing, lambda db: webhooks.replay(db, KEY, FIRST, **AT)),
    ("remove webhook", created, lambda db: webhooks.remove(db, KEY, **AT)),
    ("disable", created, lambda db: progress.record_result(db, GONE, NOW)),
    ("gap", created, lambda db: progress.pass_gap(db, WEBHOOK, LOST, FIRST)),
    ("lost event", failing, lambda db: progress.drop_event(db, WEBHOOK, 1, LOST)),
    ("give up", failing, lambda db: progress.record_result(db, result(GiveUp()), NOW)),
]
"""What changes webhooks, or appends events about them."""

OTHERS: list[tuple[Do, Do]] = [
    (failing, lambda db: progress.record_result(db, result(Done()), NOW)),
    (
        with_gap,
        lambda db: progress.record_result(db, result(Done(), number=GAP, gap=LOST), NOW),
    ),
    (failing, lambda db: progress.progress_of(db, "w")),
    (with_gap, lambda db: progress.progress_of(db, "w")),
    (created, lambda db: progress.save_position(db, WEBHOOK, FIRST)),
    (created, lambda db: webhooks.change(db, WEBHOOK, **AT)),
    (failing, lambda db: webhooks.states_of(db, "alice")),
    (created, lambda db: webhooks.states_of(db, "alice", "w")),
    (created, lambda db: webhooks.states_of(db, None)),
    (created, lambda db: webhooks.find(db, None)),
    (created, lambda db: webhooks.find(db, ["w"])),
    (created, lambda db: webhooks.secrets_of(db, "w")),
    (
        with_many_attempts,
        lambda db: attempts.find_attempts(db, "w", before=9, limit=9, failed=True),
    ),
    (failing, lambda db: attempts.remove_old_failures(db, NOW + 1)),
    (orphaned, lambda db: [attempts.remove_orphans(db, NOW) for _ in range(9)]),
]
"""Calls without either."""
