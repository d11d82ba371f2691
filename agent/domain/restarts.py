"""When a failed process is started again. Pure."""

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""A process that ran this long has recovered: its next failure begins at the first delay."""
TRIES = 5
"""Starts again that an engine may refuse, one after the other, before the session is dead."""


def next_delay(previous: float, ran_for: float) -> float:
    """Seconds to wait before the next start.

    `previous` is the last delay, 0 for none; `ran_for` how long the last run lasted, in seconds.
    """
    if previous <= 0 or ran_for >= STEADY_SECONDS:
        return FIRST_DELAY_SECONDS
    return min(LONGEST_DELAY_SECONDS, previous * 2)


def remaining_delay(delay: float, ended_for: float) -> float:
    """Seconds to wait now for a start that was put off by `delay`, `ended_for` seconds ago.

    At least the first delay: a start that could not be tried is tried again after it.
    """
    return min(delay, max(FIRST_DELAY_SECONDS, delay - ended_for))
