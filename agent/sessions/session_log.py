"""The lines of the log that a session's life makes: one for each change that operators ask for."""

from agent.domain.session import Session, State
from tiltyard.runtime.logging.context import unbind
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


def tell(before: Session, after: Session) -> None:
    """Log what a change has made of a session."""
    if before.is_standby and not after.is_standby:
        log.info("standby claimed", **_named(after))
    if before.state is after.state:
        return
    if after.state is State.RUNNING and before.state is State.CREATED:
        seconds = (after.start_time or after.create_time) - after.create_time
        told = log.bind(seconds=seconds, image=after.spec.image, **_named(after))
        told.info("standby started" if after.is_standby else "session started")
        unbind("request")  # what comes from now on is not its work
    elif after.state is State.RUNNING:
        log.info("session restarted", count=after.restart_count, session=after.internal_id)
    elif after.state is State.RESTARTING:
        log.info(
            "session failed, and restarts",
            session=after.internal_id,
            exit_code=after.exit_code,
            seconds=after.restart_delay,
        )
    elif after.state.ended:
        log.info(
            "session ended",
            reason=after.end_reason and after.end_reason.name.lower(),
            exit_code=after.exit_code,
            error=after.detail or None,
            **_named(after),
        )


def _named(session: Session) -> dict[str, str]:
    identity = session.spec.identity
    named = {
        "session": session.internal_id,
        "id": identity.session_id,
        "account": identity.account,
        "application": identity.application,
    }
    if session.is_standby and session.standby is not None:
        named["pool"] = session.standby.pool
    return named
