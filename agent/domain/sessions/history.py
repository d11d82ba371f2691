"""Ends and resource usage of a session's runs. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeVar

from tiltyard.ends import FailedRun

N = TypeVar("N", int, float)

RUNS_KEPT = 100  # Failed runs in a record, at most 16 KB; `restart_count` is not limited

MOST_KILLED = 20  # Names of killed processes in a record

_SIGNALS = range(1, 65)
_SIGNALLED = 128  # Added to a signal's number for its exit code, as in shells


@dataclass(frozen=True, slots=True)
class Usage:
    """Values of the container's cgroup; None if one could not be read.

    `refused_pids`: how often it could not have another process or thread.
    """

    cpu_seconds: float | None = None
    peak_memory_bytes: int | None = None
    oom_kills: int | None = None
    refused_pids: int | None = None

    def __add__(self, later: Usage) -> Usage:
        """The usage of two consecutive runs."""
        return Usage(
            _sum(self.cpu_seconds, later.cpu_seconds),
            _most(self.peak_memory_bytes, later.peak_memory_bytes),
            _sum(self.oom_kills, later.oom_kills),
            _sum(self.refused_pids, later.refused_pids),
        )

    def __or__(self, other: Usage) -> Usage:
        """The usage of one run by two readings: the larger values."""
        return Usage(
            _most(self.cpu_seconds, other.cpu_seconds),
            _most(self.peak_memory_bytes, other.peak_memory_bytes),
            _most(self.oom_kills, other.oom_kills),
            _most(self.refused_pids, other.refused_pids),
        )


def with_run(runs: tuple[FailedRun, ...], run: FailedRun) -> tuple[FailedRun, ...]:
    """Append a run and keep the newest RUNS_KEPT."""
    return (*runs, run)[-RUNS_KEPT:]


def signal_of(exit_code: int | None) -> int | None:
    """The signal n of an exit code 128 + n, though a process may exit with that; else None."""
    number = (exit_code or 0) - _SIGNALLED
    return number if number in _SIGNALS else None


def _sum(one: N | None, other: N | None) -> N | None:
    if one is None:
        return other
    return one if other is None else one + other


def _most(one: N | None, other: N | None) -> N | None:
    if one is None:
        return other
    return one if other is None else max(one, other)
