"""When a failed process is started again (decisions.md, restart). Pure."""

from __future__ import annotations

FIRST_DELAY_SECONDS = 1.0
LONGEST_DELAY_SECONDS = 60.0
STEADY_SECONDS = 600.0
"""A process that ran this long has recovered: its next failure begins at the first delay."""


def next_delay(previous: float, ran_for: float) -> float:
    """Seconds to wait before the next start.

    `previous` is the last delay, 0 for none; `ran_for` how long the last run lasted, in seconds.
    """
    if previous <= 0 or ran_for >= STEADY_SECONDS:
        return FIRST_DELAY_SECONDS
    return min(LONGEST_DELAY_SECONDS, previous * 2)


def should_restart(*, wanted: bool, exit_code: int | None, stopping: bool) -> bool:
    """True for a failure of a session that asked for restarts and was not told to stop.

    An unknown exit code counts as a failure.
    """
    return wanted and not stopping and exit_code != 0
