"""Events of sessions that no start has made."""

from collections.abc import Mapping

from controlplane.domain.access.audit import ITSELF
from controlplane.domain.events.sessions import SessionStarting, SessionSubject
from tiltyard.contract import Identity


def starting(
    account: str,
    session_id: str,
    now: float,
    image: str = "game",
    *,
    labels: Mapping[str, str] | None = None,
) -> SessionStarting:
    """Return the event of a start."""
    identity = Identity(account, session_id, image, "v1", "local", labels=labels or {})
    subject = SessionSubject.of(identity)
    return SessionStarting(*subject.named(ITSELF, now))
