"""Events of sessions that no start has made."""

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from tiltyard.contract import Identity


def starting(account: str, session_id: str, now: float, image: str = "game") -> SessionStarting:
    """Return the event of a start."""
    subject = SessionSubject.of(Identity(account, session_id, image, "v1", "local"))
    return SessionStarting(*subject.named(ITSELF, now))
