"""What the runs of a session leave behind: how each ended, and what they used. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

N = TypeVar("N", int, float)

RUNS_KEPT = 100
"""Failed runs that a record holds: 12 KB at most; the count is not limited."""

_SIGNALS = range(1, 65)
_SIGNALLED = 128
"""An engine adds the signal to it when it makes an exit code of one, as shells do."""


@dataclass(frozen=True, slots=True)
class Usage:
    """Processor time in seconds, and the most memory at one time in bytes.

    `oom_kills` are processes that were killed at the container's memory limit. All values are
    the kernel's for the container; None where they could not be read.
    """

    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int | None = None

    def __add__(self, later: Usage) -> Usage:
        """What two runs used, one after the other."""
        return Usage(
            _sum(self.cpu_seconds, later.cpu_seconds),
            _most(self.peak_memory_bytes, later.peak_memory_bytes),
            _sum(self.oom_kills, later.oom_kills),
        )

    def __or__(self, other: Usage) -> Usage:
        """What one run used, by two readings: no number ever falls."""
        return Usage(
            _most(self.cpu_seconds, other.cpu_seconds),
            _most(self.peak_memory_bytes, other.peak_memory_bytes),
            _most(self.oom_kills, other.oom_kills),
        )


@dataclass(frozen=True, slots=True)
class Run:
    """A run that failed and was to be followed by another, `delay` seconds later.

    Times are seconds of Unix time; `start_time` and `exit_code` are None if unknown.
    """

    start_time: float | None
    end_time: float
    exit_code: int | None
    oom_killed: bool
    delay: float


def with_run(runs: tuple[Run, ...], run: Run) -> tuple[Run, ...]:
    """The newest RUNS_KEPT of all, oldest first."""
    return (*runs, run)[-RUNS_KEPT:]


def signal_of(exit_code: int | None) -> int | None:
    """The signal n of an exit code 128 + n; None for any other.

    A process may also exit with such a code by itself; an engine does not distinguish the two.
    """
    number = (exit_code or 0) - _SIGNALLED
    return number if number in _SIGNALS else None


def _sum(one: N | None, other: N | None) -> N | None:
    return one if other is None else other if one is None else one + other


def _most(one: N | None, other: N | None) -> N | None:
    return one if other is None else other if one is None else max(one, other)
