"""Numbers of players of a session."""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MostPlayers:
    """The highest numbers of players in the runs of a session.

    `last`: in its last run; `earlier`: in failed runs, by the milliseconds of their ends.
    """

    last: int
    earlier: Mapping[int, int]
