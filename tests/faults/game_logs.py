"""The invariant of the demo game's log, whose lines are numbered: I8. Pure."""

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

_LINE = re.compile(rb"(\d{6,}) \d{4}-\d\d-\d\dT[\d:.]+Z ")
_DROPPED = b"[tiltyard: "
_MOST_TAKEN = 2**16 // len("000001 2000-01-01T00:00:00.000Z tick\n")
"""Most lines in 64 KiB, as much as an engine buffers of one pipe."""


@dataclass(frozen=True, slots=True)
class _Run:
    """Line numbers of one run of the game, or of the lines after one of the agent's markers."""

    numbers: list[int]
    is_cut: bool

    @property
    def gaps(self) -> list[int]:
        """Return the number of missing lines of each gap."""
        first = [] if self.is_cut else [0]
        return [b - a - 1 for a, b in _breaks([*first, *self.numbers]) if b > a]


def log_violations(
    internal_id: str, log: bytes, *, may_lack: int = 0, starts: int = 0, last: int = 0
) -> list[str]:
    """Return lost, duplicate and misordered lines of the demo game's complete log (I8).

    The game numbers its lines, each run of it from 1. It may write each second line to stderr:
    order is kept within a stream. Anything may follow one of our markers. An engine that ends
    loses what it has read and not yet written, some lines in a row: the number of such gaps the
    log `may_lack`. `starts`: how often the game began, `last`: the number of its last line; 0
    where that is unknown.
    """
    runs = _runs(log)
    wrong = []
    for run in runs:
        numbers = run.numbers
        streams = ([n for n in numbers if n % 2 == rest] for rest in (0, 1))
        lost = len(run.gaps) > may_lack or max(run.gaps, default=0) > _MOST_TAKEN
        if lost or len(set(numbers)) != len(numbers):
            places = ", ".join(f"{a} to {b}" for a, b in _breaks([0, *numbers])[:5])
            wrong.append(f"I8: lines of {internal_id} are lost or doubled: {places}")
        elif any(own != sorted(own) for own in streams):
            wrong.append(f"I8: lines of {internal_id} are out of order")
    whole = sum(not run.is_cut for run in runs)
    # A game may be ended before its first line.
    too_few = runs and not may_lack and whole == len(runs) < starts - 1
    if starts and (whole > starts or too_few):
        wrong.append(f"I8: {internal_id} began {starts} times, its log has {whole} beginnings")
    if last and not may_lack and not _is_cut_at_its_end(log) and _last(runs) != last:
        wrong.append(f"I8: the log of {internal_id} ends with {_last(runs)}, the game with {last}")
    return wrong


def lines_lost(log: bytes, last: int = 0) -> int:
    """Return the number of missing lines, except those that the agent's markers report."""
    runs = _runs(log)
    at_the_end = last - _last(runs) if last and not _is_cut_at_its_end(log) else 0
    return at_the_end + sum(sum(run.gaps) for run in runs)


def _runs(log: bytes) -> list[_Run]:
    runs = [_Run([], is_cut=False)]
    for line in log.splitlines():
        found = _LINE.search(line)  # after bytes without a newline, too
        if line.startswith(_DROPPED):
            runs.append(_Run([], is_cut=True))
        elif found and int(found[1]) == 1 and runs[-1].numbers:
            runs.append(_Run([1], is_cut=False))
        elif found:
            runs[-1].numbers.append(int(found[1]))
    return [run for run in runs if run.numbers]


def _last(runs: Sequence[_Run]) -> int:
    return max(runs[-1].numbers) if runs else 0


def _is_cut_at_its_end(log: bytes) -> bool:
    return log.rpartition(b"\n")[0].rpartition(b"\n")[2].startswith(_DROPPED)


def _breaks(run: Iterable[int]) -> list[tuple[int, int]]:
    """Return the positions at which a line is not followed by the next one."""
    return [(a, b) for a, b in itertools.pairwise(sorted(run)) if b != a + 1]
