"""Places in the log of events, and the error of one that cannot be read from."""

import re
from typing import NamedTuple, Self

from controlplane.domain.errors import Reason, TiltyardError

_NUMBER = "[0-9]{1,18}"
_FORM = re.compile(rf"({_NUMBER})-({_NUMBER})\Z", re.ASCII)
POSITION_PATTERN = f"^{_NUMBER}-{_NUMBER}$"
"""The pattern of the texts that `Position.parse` accepts, for JSON Schema."""


class Position(NamedTuple):
    """A place in the log: after the event of this number, before the next one.

    It is also the id of that event. Numbers of different epochs have nothing to do with each
    other.
    """

    epoch: int
    number: int

    def __str__(self) -> str:
        return f"{self.epoch}-{self.number}"

    @classmethod
    def parse(cls, text: str) -> Self | None:
        """Parse `<epoch>-<number>`; None if the text has another form."""
        found = _FORM.match(text)
        return None if found is None else cls(int(found[1]), int(found[2]))


class EventsGoneError(TiltyardError):
    """Events after a position were removed, or the position is of another epoch.

    A reader that continues after `resume` misses nothing else. `oldest` is the first event that it
    then gets, None if there is none yet.
    """

    after: Position
    resume: Position
    oldest: Position | None
    reason = Reason.GONE
    template = "events are gone"
    detail_template = "cannot read events after {after}: what is left begins after {resume}"
