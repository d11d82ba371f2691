"""One session of the agent: its state, those who wait for it, and how a change is recorded."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agent.domain.errors import AgentError, DiskFullError, StandbyNotClaimableError
from agent.domain.session import Session
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, Identity, State
from tiltyard.runtime.logging.events import get_logger, unbind

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """Whose a standby becomes; `ttl` in seconds from the claim, None for none.

    `request` is the caller's own, in JSON. `again` repeats a claim that the control plane's store
    holds already; a standby in doubt takes no other.
    """

    identity: Identity
    ttl: float | None
    request: str
    again: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PendingClaim:
    """A claim under way, and its outcome: None once the game has been notified."""

    request: ClaimRequest
    answer: asyncio.Future[AgentError | None]


class Life:
    """A session in the agent's keeping; its own task (`Lifecycle`) drives it.

    Only that task writes its record while the session lives, and cleanup after that.
    """

    def __init__(self, runtime: Runtime, reservations: Reservations, session: Session) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self.session = session
        self._changed = asyncio.Event()
        self._start_finished = asyncio.Event()
        if self.started:
            self._start_finished.set()
        self.start_error: AgentError | None = None
        self.stop_reason = session.stop_reason
        self.stop_asked = asyncio.Event()
        self.pending_claim: PendingClaim | None = None
        self.claim_or_stop = asyncio.Event()
        """Set by a claim and by a request to stop."""
        if self.stop_reason is not None:
            self.stop_asked.set()
        self.removed = asyncio.Event()
        """Set once nothing is left of it: its start failed, or it was forgotten."""
        self.cleanup_lock = asyncio.Lock()
        """Held while something that it left at its end is removed."""
        self.unkillable = False
        """True while a dead session's process survives SIGKILL."""

    @property
    def started(self) -> bool:
        """True once the start has succeeded; a session that never did is reported to nobody."""
        return self.session.state is not State.CREATED

    async def wait_started(self) -> None:
        """Return when the start has succeeded; raise what it failed with."""
        await self._start_finished.wait()
        if self.start_error is not None:
            raise self.start_error

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        """Return when the session is as asked, or is removed."""
        while not reached(self.session) and not self.removed.is_set():
            await self._changed.wait()

    # -- requests ------------------------------------------------------------------------------

    def ask_stop(self, reason: EndReason) -> None:
        """Have the session end; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stop_asked.set()
            self.claim_or_stop.set()

    def begin_claim(self, request: ClaimRequest) -> PendingClaim:
        """Have the session's task carry out a claim."""
        answer = asyncio.get_running_loop().create_future()
        self.pending_claim = PendingClaim(request, answer)
        self.claim_or_stop.set()
        return self.pending_claim

    def answer_claim(self, error: AgentError | None) -> None:
        """End the claim that is under way, if any."""
        if self.pending_claim is not None:
            self.pending_claim.answer.set_result(error)
            self.pending_claim = None

    # -- changes -------------------------------------------------------------------------------

    async def save(self, session: Session) -> None:
        """Record a change, then apply it. A full disk does not stop what already runs."""
        try:
            await self._runtime.records.save(session)
        except DiskFullError as error:
            log.warning("a change is not recorded", session=session.internal_id, error=str(error))
            await self._runtime.records.mark_stop(session)
        self.apply(session)

    def apply(self, session: Session) -> None:
        """Replace the session by what is recorded, stamp its sequence and notify the watchers."""
        self._runtime.metrics.session_changed(self.session, session)
        _log_change(self.session, session)
        self.session = session.with_changes(sequence=self._runtime.feed.stamp())
        self._reservations.tls_ports.follow(self.session)
        if session.state is not State.RUNNING:
            ended = StandbyNotClaimableError("it has ended") if session.is_standby else None
            self.answer_claim(ended)
        self._wake_waiters()
        if self.started:
            self._runtime.feed.session_changed(self.session)

    def note(self, **changes: object) -> None:
        """Change what is recorded with the next change."""
        self.session = self.session.with_changes(**changes)

    async def publish(self) -> bool:
        """Write the session.json that the game reads; False when the disk is full."""
        try:
            await self._runtime.records.publish(self.session, self._reservations.drain.now)
        except DiskFullError as error:
            log.warning(
                "cannot write session.json", session=self.session.internal_id, error=str(error)
            )
            return False
        return True

    def arm(self) -> None:
        """Have the session come due when its lifetime is over."""
        if self.session.deadline is not None:
            self._runtime.deadlines.arm(self.session.internal_id, self.session.deadline)

    def release(self) -> None:
        """Free what it holds of the host."""
        self._reservations.release(self.session.internal_id)

    def finish_start(self, error: AgentError | None = None) -> None:
        """Wake those who wait for the start; the first error counts."""
        self.start_error = self.start_error or error
        self._start_finished.set()

    def mark_removed(self) -> None:
        """Wake all who wait: nothing is left of it."""
        self.removed.set()
        self._wake_waiters()

    def _wake_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()


def _log_change(before: Session, after: Session) -> None:
    """Log what a change has made of a session."""
    if before.is_standby and not after.is_standby:
        log.info("standby claimed", **_named(after))
    if before.state is after.state:
        return
    if after.state is State.RUNNING and before.state is State.CREATED:
        seconds = (after.start_time or after.create_time) - after.create_time
        named = log.bind(seconds=seconds, image=after.spec.image, **_named(after))
        named.info("standby started" if after.is_standby else "session started")
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
