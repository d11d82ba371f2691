"""The rate at which sessions print, and which of them print too much for too long. Pure.

The engine copies each line of output in its own process, which no limit of a session covers. So a
session must not print faster than the host allows. Bursts are honest: of a map that is loaded, or
of a stack trace. Therefore a session has a budget of seconds.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

TOLERATED_SECONDS = 30.0  # How long a session may exceed the limits before it is ended
FORGIVEN_SHARE = 0.25
"""Seconds that are forgiven for each second within the limits: a session that floods for more than
a fifth of the time is ended, too."""


class LogRate(NamedTuple):
    """A rate of output, or the limits of one, per second."""

    lines: float
    size: float

    def exceeds(self, limits: "LogRate") -> bool:
        """Whether a limit is exceeded; a limit of 0 is none."""
        return 0 < limits.lines < self.lines or 0 < limits.size < self.size


@dataclass(eq=False)
class LogExcess:
    """The seconds for which each session has exceeded the limits, less those forgiven."""

    _seconds: dict[str, float] = field(default_factory=dict)

    @property
    def sessions(self) -> Collection[str]:
        """Internal ids of the sessions that have exceeded the limits."""
        return self._seconds.keys()

    def update(
        self, sampled: Mapping[str, bool], passed: float, *, unknown: Collection[str] = ()
    ) -> list[str]:
        """Note whether each sampled session exceeds the limits, `passed` seconds after the last.

        `unknown`: sessions that may as well, and keep their seconds; all others are within them.
        Returns the sessions that have exceeded the limits for TOLERATED_SECONDS.
        """
        for each in self._seconds.keys() | sampled.keys():
            before = self._seconds.pop(each, 0.0)
            after = before if each in unknown else before - passed * FORGIVEN_SHARE
            if sampled.get(each):
                after = before + passed
            if after > 0:
                self._seconds[each] = after
        return [each for each, seconds in self._seconds.items() if seconds >= TOLERATED_SECONDS]
