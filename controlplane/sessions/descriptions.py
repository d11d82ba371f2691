"""Descriptions of live sessions, kept as JSON until a commit changes the session."""

from dataclasses import dataclass

from controlplane.domain.sessions.status import SessionStatus
from tiltyard.contract import State

MOST_BYTES = 48 * 1024 * 1024  # Memory for descriptions: of about 40,000 sessions with few players
_BESIDE = 600  # Bytes of a description beside its JSON: objects and keys


@dataclass(frozen=True, slots=True)
class Description:
    """A live session as JSON, while its host gives it this status."""

    agent: str | None
    state: State
    status: SessionStatus
    content: bytes

    @property
    def size(self) -> int:
        """Bytes in memory."""
        return len(self.content) + _BESIDE
