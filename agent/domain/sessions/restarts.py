"""Back-off of restarts. Pure."""

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
STEADY_SECONDS = 600.0  # A run of this length resets the delay
TRIES = 5  # Consecutive refused restarts before the session is dead


def next_delay(previous: float, ran_for: float) -> float:
    """Seconds before the next start, given the `previous` delay and the last run's length."""
    if previous <= 0 or ran_for >= STEADY_SECONDS:
        return FIRST_DELAY_SECONDS
    return min(LONGEST_DELAY_SECONDS, previous * 2)


def remaining_delay(delay: float, ended_for: float) -> float:
    """The rest of a `delay` that began `ended_for` seconds ago, at least the first delay."""
    return min(delay, max(FIRST_DELAY_SECONDS, delay - ended_for))
