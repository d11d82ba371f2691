"""Attempts to deliver messages, and how far a webhook has come."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from controlplane.domain.events.positions import Position
from controlplane.domain.webhooks.retries import Decision, Outcome

MAX_ANSWER = 1024  # Bytes of an answer that are kept
GAP = 0  # In place of the number of an event: the message about a gap


@dataclass(frozen=True, slots=True)
class Answer:
    """The result of an attempt; `seconds` is its duration.

    `status` is None without an answer, `text` the beginning of its body. `retry_after` in seconds.
    """

    outcome: Outcome
    seconds: float
    status: int | None = None
    error: str = ""
    text: str = ""
    retry_after: float | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """An attempt that has ended, and that began at `time`; `event` is the id of one, or `test`."""

    event: str
    kind: str
    time: float
    answer: Answer
    number: int = 0
    """Counted per webhook from 1, in the order of their ends; 0 before it is stored."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Events that a webhook does not deliver, by their ids; `last` is None if it is not known.

    `number` is that of the event about the gap, 0 before it is in the log.
    """

    first: str
    last: str | None
    cause: str
    time: float
    number: int = 0


@dataclass(frozen=True, slots=True)
class FailedEvent:
    """An event whose last attempt has failed; times in seconds since the epoch."""

    number: int
    attempts: int
    began: float
    due: float


@dataclass(frozen=True, slots=True)
class Progress:
    """The progress of a webhook: events up to `position` are delivered or in `failed`.

    `failing_since`: the time of the first failure of its endpoint after the last delivery.
    """

    position: Position
    failing_since: float | None = None
    gap: Gap | None = None
    failed: Mapping[int, FailedEvent] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Result:
    """The changes that an attempt makes to a webhook, in one generation of the webhook.

    `position` is the new one of the webhook. `failed` is the event if it is delivered later. `gap`
    is the gap that the message named, if it was about one.
    """

    webhook: str
    generation: int
    number: int
    attempt: Attempt
    decision: Decision
    position: Position
    failed: FailedEvent | None = None
    gap: Gap | None = None
