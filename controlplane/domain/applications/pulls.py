"""The state of one pull on one host."""

from dataclasses import dataclass, field
from enum import StrEnum

from tiltyard.contract import ErrorReason
from tiltyard.images import PullProgress


class PullState(StrEnum):
    """The state of a pull. A queued one waits for other pulls on its host, `no_room` for disk."""

    PULLING = "pulling"
    FAILED = "failed"
    NO_ROOM = "no_room"
    QUEUED = "queued"


@dataclass(slots=True)
class Pull:
    """An unfinished pull. `cause`, `reason` and `failed` describe its newest failure.

    `reason` is the host's, None if it gave none.
    """

    image: str
    state: PullState = PullState.QUEUED
    progress: PullProgress = field(default_factory=PullProgress)
    failures: int = 0
    cause: str = ""
    reason: ErrorReason | None = None
    failed: float | None = None

    @property
    def registry(self) -> str:
        """The address of its registry."""
        return self.image.partition("/")[0]
