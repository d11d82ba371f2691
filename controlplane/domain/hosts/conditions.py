"""What the log of events says of a host, apart from its contact."""

from typing import NamedTuple


class Avoidance(NamedTuple):
    """All starts avoid a host until a Unix time, since its newest failure `reason`, `error`."""

    until: float
    reason: str
    error: str


class HostConditions(NamedTuple):
    """The conditions of a host. `is_empty`: it is draining, and has no live session."""

    is_disk_full: bool = False
    is_empty: bool = False
    avoidance: Avoidance | None = None

    def is_news(self, written: "HostConditions") -> bool:
        """Return whether the log does not have these conditions yet, given what it has.

        The end of an avoidance is not written: its event says until when it lasts.
        """
        is_new_avoidance = self.avoidance is not None and written.avoidance is None
        return is_new_avoidance or self[:2] != written[:2]
