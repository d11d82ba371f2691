"""Retries: what follows from an attempt to deliver a message.

| outcome | status | what follows |
|---|---|---|
| delivered | 2xx | the next event |
| gone | 410 | the webhook is disabled |
| throttled | 429, 502, 504 | a retry, and one attempt at a time |
| redirected | 3xx | a retry; redirects are not followed |
| rejected | any other | a retry |
| timeout, unreachable, untrusted, forbidden, invalid, unsigned | none | a retry |

An endpoint that has failed for FAILING_FOR is disabled, and a single event that has failed for as
long is given up.
"""

from dataclasses import dataclass
from enum import StrEnum, auto

from controlplane.domain.webhooks.webhook import DisabledCause

MINUTE = 60.0
HOUR = 3600.0
DELAYS = (
    5.0,
    5 * MINUTE,
    30 * MINUTE,
    2 * HOUR,
    5 * HOUR,
    10 * HOUR,
    14 * HOUR,
    20 * HOUR,
    24 * HOUR,
)
"""Seconds from a failed attempt to the next one; the last one repeats."""

JITTER = 0.2  # Part of a delay that is added at most
FAILING_FOR = 5 * 24 * HOUR
LEAST_RETRY_AFTER = 5.0
MOST_RETRY_AFTER = 24 * HOUR
"""Bounds of `Retry-After`, in seconds."""

_THROTTLED = frozenset({429, 502, 504})


class Outcome(StrEnum):
    """The outcome of an attempt."""

    DELIVERED = auto()
    GONE = auto()
    THROTTLED = auto()
    REDIRECTED = auto()
    REJECTED = auto()
    TIMEOUT = auto()
    UNREACHABLE = auto()  # No such name, or no connection
    UNTRUSTED = auto()  # The certificate of the endpoint is not valid
    FORBIDDEN = auto()  # Its address is not public, and no operator allows it
    INVALID = auto()  # The answer is not HTTP, or its headers are too large
    UNSIGNED = auto()  # The secret cannot be read


@dataclass(frozen=True, slots=True)
class Done:
    """The event is delivered."""


@dataclass(frozen=True, slots=True)
class Retry:
    """The next attempt is due after a delay in seconds."""

    delay: float


@dataclass(frozen=True, slots=True)
class GiveUp:
    """The event is not delivered any more."""


@dataclass(frozen=True, slots=True)
class Disable:
    """The webhook is disabled, and keeps the event."""

    cause: DisabledCause


Decision = Done | Retry | GiveUp | Disable


@dataclass(frozen=True, slots=True)
class Failing:
    """The failed attempts so far; times in seconds since the epoch.

    `attempts`: of this event, with the newest one. `began`: when its first one failed. `since`:
    when the endpoint failed first after its last delivery.
    """

    attempts: int
    began: float
    since: float


def outcome_of(status: int) -> Outcome:
    """Return the outcome of an answer."""
    if 200 <= status < 300:
        return Outcome.DELIVERED
    if status == 410:
        return Outcome.GONE
    if status in _THROTTLED:
        return Outcome.THROTTLED
    return Outcome.REDIRECTED if 300 <= status < 400 else Outcome.REJECTED


def decide(
    outcome: Outcome,
    failing: Failing,
    *,
    now: float,
    retry_after: float | None,
    jitter: float,
) -> Decision:
    """Decide what follows from an attempt.

    `jitter` is a random number from 0 to 1. `retry_after`: seconds that the endpoint asks for, in
    place of the step of DELAYS.
    """
    if outcome is Outcome.DELIVERED:
        return Done()
    if outcome is Outcome.GONE:
        return Disable(DisabledCause.GONE)
    if now - failing.since >= FAILING_FOR:
        return Disable(DisabledCause.FAILING)
    if now - failing.began >= FAILING_FOR:
        return GiveUp()
    delay = DELAYS[min(failing.attempts, len(DELAYS)) - 1]
    if retry_after is not None:
        delay = min(max(retry_after, LEAST_RETRY_AFTER), MOST_RETRY_AFTER)
    # The last attempt is at the end of the time, not a day later.
    left = min(failing.since, failing.began) + FAILING_FOR - now
    return Retry(min(delay * (1 + JITTER * jitter), left))
