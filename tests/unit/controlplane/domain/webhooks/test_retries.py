"""What follows from an attempt."""

import pytest

from controlplane.domain.webhooks.retries import (
    DELAYS,
    FAILING_FOR,
    HOUR,
    JITTER,
    MINUTE,
    Decision,
    Disable,
    Done,
    Failing,
    GiveUp,
    Outcome,
    Retry,
    decide,
    outcome_of,
)
from controlplane.domain.webhooks.webhook import DisabledCause

NOW = 1_800_000_000.0
FAILED = sorted(set(Outcome) - {Outcome.DELIVERED, Outcome.GONE})


def decided(
    outcome: Outcome = Outcome.REJECTED,
    *,
    attempts: int = 1,
    began: float = 0.0,
    since: float = 0.0,
    retry_after: float | None = None,
    jitter: float = 0.0,
) -> Decision:
    """Decide about an event that failed first `began`, an endpoint `since` seconds ago."""
    failing = Failing(attempts, NOW - began, NOW - since)
    return decide(outcome, failing, now=NOW, retry_after=retry_after, jitter=jitter)


@pytest.mark.parametrize(
    ("status", "outcome"),
    [
        (200, Outcome.DELIVERED),
        (204, Outcome.DELIVERED),
        (299, Outcome.DELIVERED),
        (300, Outcome.REDIRECTED),
        (301, Outcome.REDIRECTED),
        (308, Outcome.REDIRECTED),
        (399, Outcome.REDIRECTED),
        (400, Outcome.REJECTED),
        (404, Outcome.REJECTED),
        (410, Outcome.GONE),
        (429, Outcome.THROTTLED),
        (500, Outcome.REJECTED),
        (502, Outcome.THROTTLED),
        (503, Outcome.REJECTED),
        (504, Outcome.THROTTLED),
        (199, Outcome.REJECTED),
        (999, Outcome.REJECTED),
    ],
)
def test_outcome_of_a_status(status: int, outcome: Outcome) -> None:
    assert outcome_of(status) is outcome


def test_delivery_is_done_however_long_it_has_failed() -> None:
    assert decided(Outcome.DELIVERED, began=FAILING_FOR, since=FAILING_FOR) == Done()


def test_410_disables_at_once() -> None:
    assert decided(Outcome.GONE) == Disable(DisabledCause.GONE)


@pytest.mark.parametrize("outcome", FAILED)
def test_every_other_outcome_is_retried(outcome: Outcome) -> None:
    assert decided(outcome) == Retry(5.0)


def test_delays_are_those_of_the_specification() -> None:
    hours = [2 * HOUR, 5 * HOUR, 10 * HOUR, 14 * HOUR, 20 * HOUR, 24 * HOUR]
    assert list(DELAYS) == [5.0, 5 * MINUTE, 30 * MINUTE, *hours]
    found = [decided(attempts=number) for number in range(1, 12)]
    assert found == [Retry(delay) for delay in (*DELAYS, DELAYS[-1], DELAYS[-1])]


def test_jitter_lengthens_a_delay() -> None:
    assert decided(attempts=2, jitter=1.0) == Retry(5 * MINUTE * (1 + JITTER))
    assert decided(attempts=2, jitter=0.5) == Retry(5 * MINUTE * (1 + JITTER / 2))


@pytest.mark.parametrize(
    ("retry_after", "delay"),
    [
        (60.0, 60.0),
        (0.0, 5.0),
        (4.0, 5.0),
        (1e9, 24 * HOUR),
    ],
)
def test_endpoint_chooses_the_delay_within_bounds(retry_after: float, delay: float) -> None:
    for attempts in (1, 4):
        found = decided(Outcome.THROTTLED, attempts=attempts, retry_after=retry_after)
        assert found == Retry(delay)


def test_endpoint_is_not_asked_before_the_time_that_it_wants() -> None:
    assert decided(retry_after=60.0, jitter=1.0) == Retry(60.0 * (1 + JITTER))


def test_endpoint_that_fails_for_five_days_is_disabled() -> None:
    assert decided(since=FAILING_FOR) == Disable(DisabledCause.FAILING)
    assert decided(since=FAILING_FOR - 1) == Retry(1.0)


def test_event_that_fails_for_five_days_is_given_up_if_others_are_delivered() -> None:
    assert decided(began=FAILING_FOR) == GiveUp()
    assert decided(began=FAILING_FOR - 1) == Retry(1.0)


def test_last_attempt_is_at_the_end_of_the_five_days() -> None:
    assert decided(attempts=10, since=FAILING_FOR - HOUR, jitter=1.0) == Retry(HOUR)
    assert decided(retry_after=5 * HOUR, since=FAILING_FOR - HOUR) == Retry(HOUR)
