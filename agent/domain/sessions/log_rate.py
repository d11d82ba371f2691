"""The rate at which sessions print, and which of them print too much for too long. Pure.

The engine copies each line of output in its own process, which no limit of a session covers. So a
session must not print faster than the host allows. Bursts are honest: of a map that is loaded, or
of a stack trace. Therefore a session has a budget of seconds.
"""

from collections.abc import Collection, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import NamedTuple

from tiltyard.runtime.fair_share import exceeds_share

KNOWN_SECONDS = 30.0  # How long the estimate of an account counts
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

    def part_of(self, limits: "LogRate") -> float:
        """The greatest part that this rate is of a limit; a limit of 0 is none."""
        lines = self.lines / limits.lines if limits.lines else 0.0
        size = self.size / limits.size if limits.size else 0.0
        return max(lines, size)


@dataclass(eq=False)
class LogShares:
    """Estimates of what all sessions of an account print together, of the last KNOWN_SECONDS.

    `limits`: of the host; an account may print at most its share, as much as others leave free.
    """

    limits: LogRate
    _rates: dict[str, tuple[LogRate, float]] = field(default_factory=dict)
    """By account, with the time of the estimate."""

    def exceeds(
        self, account: str, sampled: Sequence[LogRate], sessions: int, *, now: float
    ) -> bool:
        """Whether an account prints more than its share; a limit of 0 is none.

        `sessions`: their number, of which a random sample printed at these rates.
        """
        each = sessions / max(1, len(sampled))
        lines = each * sum(rate.lines for rate in sampled)
        size = each * sum(rate.size for rate in sampled)
        own = LogRate(lines, size)
        self._rates[account] = own, now
        for name in [name for name, (_, at) in self._rates.items() if now - at > KNOWN_SECONDS]:
            del self._rates[name]
        for kind, limit in enumerate(self.limits):
            taken = sum(rate[kind] for rate, _ in self._rates.values())
            if limit and exceeds_share(own[kind], 0, taken, limit):
                return True
        return False


@dataclass(eq=False)
class LogExcess:
    """The seconds for which each session, or account, has exceeded its limits.

    Those that were forgiven do not count.
    """

    _seconds: dict[str, float] = field(default_factory=dict)

    @property
    def names(self) -> AbstractSet[str]:
        """Internal ids of the sessions, or the accounts, that have exceeded the limits."""
        return self._seconds.keys()

    def update(
        self, sampled: Mapping[str, bool], passed: float, *, unknown: Collection[str] = ()
    ) -> list[str]:
        """Note which of the sampled ones exceed the limits, `passed` seconds after the last call.

        `unknown`: those that may as well, and keep their seconds; all others are within them.
        Returns those that have exceeded the limits for TOLERATED_SECONDS.
        """
        for each in self._seconds.keys() | sampled.keys():
            before = self._seconds.pop(each, 0.0)
            after = before if each in unknown else before - passed * FORGIVEN_SHARE
            if sampled.get(each):
                after = before + passed
            if after > 0:
                self._seconds[each] = after
        return [each for each, seconds in self._seconds.items() if seconds >= TOLERATED_SECONDS]
