"""Duration of a start and its phases. Pure, the clock is injected."""

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
    """Phases of a start in order; a cold start repeats the last four for each host."""

    PREPARE = "prepare"  # Read the application and the tag
    RESERVE = "reserve"  # Take the id and the quota of a cold start, with its first attempt
    CLAIM = "claim"  # Try standbys, if there are any, each with the id and the quota
    QUEUE = "queue"  # Wait for a host with capacity and a start slot
    COMMIT = "commit"  # Write the attempt, unless a host was free at once
    AGENT = "agent"  # The host starts it: image, network, container, process
    CONFIRM = "confirm"  # Write the host's answer


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
        """Add the time spent within to a phase."""
        began = self.monotonic()
        try:
            yield
        finally:
            self.seconds[phase] += self.monotonic() - began

    def total(self) -> float:
        """Return the seconds since the start began."""
        return self.monotonic() - self.began
