"""Keeps a storm of one event from filling the log."""

import logging
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass

AT_ONCE = 10
"""Lines of one event that may come together."""
INTERVAL_SECONDS = 60.0
"""After which one more may come: 70 lines in an hour that knows nothing else."""


@dataclass(slots=True)
class _Event:
    left: float
    at: float
    left_out: int = 0


class Limit(logging.Filter):
    """Lets a few of each warning through, then one a minute that has `left_out` of them.

    Events are identified by their constant text and a status, regardless of other fields; those of
    libraries by the line of code. So clients cannot control how many are remembered. What
    is no warning passes, unless `limited` names it, and at level debug everything does.
    """

    def __init__(
        self, limited: Collection[str] = (), monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._limited = limited
        self._monotonic = monotonic
        self._events: dict[tuple[object, ...], _Event] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Return whether a record is written; one that is has the number of those before it."""
        said = record.msg if isinstance(record.msg, dict) else {}
        event = said.get("event", record.lineno)
        is_limited = record.levelno >= logging.WARNING or event in self._limited
        if not is_limited or logging.getLogger().isEnabledFor(logging.DEBUG):
            return True
        now = self._monotonic()
        key = (record.name, event, said.get("status"))
        seen = self._events.setdefault(key, _Event(AT_ONCE, now))
        seen.left = min(AT_ONCE, seen.left + (now - seen.at) / INTERVAL_SECONDS)
        seen.at = now
        if seen.left < 1:
            seen.left_out += 1
            return False
        seen.left -= 1
        record.left_out, seen.left_out = seen.left_out, 0
        return True
