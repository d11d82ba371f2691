"""Repeats a look at a whole host after each change, with pauses in between."""

from collections.abc import Callable

from agent.changes.feed import Feed
from tiltyard.runtime.clock import Clock, rest_after
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

PASS_SECONDS = 10.0  # Longest pause between two looks; a change of the host causes one earlier
REST_FACTOR = 5.0
"""Ratio of the pause after a look to the pause after other passes over all sessions.

Callers wait for starts, which a look would delay.
"""


async def look_at_changes(
    look: Callable[[], None],
    feed: Feed,
    clock: Clock,
    *,
    next_due: Callable[[], float],
    name: str,
) -> None:
    """Call `look` after each change until cancelled.

    `next_due` returns the monotonic time of the next look without a change. An unexpected error is
    logged, and the next look follows.
    """
    while True:
        reached = feed.sequence
        began = clock.monotonic()
        try:
            look()
        except Exception:
            log.exception("cannot look at the host: internal error", part=name)
            await clock.sleep(PASS_SECONDS)
        took = clock.monotonic() - began
        await clock.sleep(rest_after(REST_FACTOR * took, PASS_SECONDS))
        wait = clock.sleep(min(PASS_SECONDS, max(0.0, next_due() - clock.monotonic())))
        await first_completed(feed.wait_change(reached), wait, f"{name}-look")
