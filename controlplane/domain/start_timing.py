"""How long a start took, and in which of its phases. Pure, the clock is injected."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import StrEnum


class StartKind(StrEnum):
    """How a session was started: a container made for it, or a standby claimed."""

    COLD = "cold"
    WARM = "warm"


class Phase(StrEnum):
    """What a start does one after the other; a cold one the last four for each host it tries."""

    PREPARE = "prepare"
    """The application and the tag are read."""
    RESERVE = "reserve"
    """The id and the quota of a cold one are taken."""
    CLAIM = "claim"
    """Standbys are tried, if there are any, each with the id and the quota."""
    QUEUE = "queue"
    """A host with room and a start slot is waited for."""
    COMMIT = "commit"
    """The attempt is written."""
    AGENT = "agent"
    """The host starts it: image, network, container, process."""
    CONFIRM = "confirm"
    """What the host answered is written."""


@dataclass(slots=True)
class StartTiming:
    """The phases of one start; seconds by the monotonic clock."""

    monotonic: Callable[[], float] = time.monotonic
    kind: StartKind = StartKind.COLD
    seconds: dict[Phase, float] = field(default_factory=lambda: defaultdict(float))
    began: float = field(init=False)

    def __post_init__(self) -> None:
        self.began = self.monotonic()

    @contextmanager
    def phase(self, phase: Phase) -> Iterator[None]:
        """Add what passes within to a phase."""
        began = self.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] += self.monotonic() - began

    def total(self) -> float:
        """Give the seconds since the start began."""
        return self.monotonic() - self.began
