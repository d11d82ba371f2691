"""One session in memory: its state, its waiters and the recording of its changes."""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from agent.domain.errors import AgentError, DiskFullError, StandbyNotClaimableError
from agent.domain.sessions.session import Session
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.agent.traces import trace_id_of
from tiltyard.contract import EndReason, Identity, State
from tiltyard.runtime.logging.events import get_logger, unbind

log = get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ClaimRequest:
    """The identity for a standby; `ttl` is in seconds from the claim, None for no limit.

    `request` is the caller's JSON. `again` repeats a claim that the control plane has stored
    already; a standby in doubt accepts no other claim.
    """

    identity: Identity
    ttl: float | None
    request: str
    again: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class PendingClaim:
    """A claim in progress; the result of `answer` is None on success."""

    request: ClaimRequest
    answer: asyncio.Future[AgentError | None]


class Life:
    """A session in memory. Its task (`Lifecycle`) writes its record, after its end cleanup."""

    def __init__(self, runtime: Runtime, reservations: Reservations, session: Session) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self.session = session
        self._changed = asyncio.Event()  # Set by changes, cleared by who waits for the next one
        self._start_finished = asyncio.Event()
        if self.started:
            self._start_finished.set()
        self.start_error: AgentError | None = None
        self.stop_reason = session.stop_reason
        self.stop_asked = asyncio.Event()
        self.pending_claim: PendingClaim | None = None
        self.wake = asyncio.Event()
        """Wakes the session's task: a claim, a stop request, or its process has ended."""
        if self.stop_reason is not None:
            self.stop_asked.set()
        self.removed = asyncio.Event()
        """Set when its start failed and was undone, or when it was forgotten."""
        self.cleanup_lock = asyncio.Lock()  # Held during a step of its cleanup
        self.unkillable = False  # True while a dead session's process survives SIGKILL

    @property
    def started(self) -> bool:
        """True once the start has succeeded; until then the session is not reported."""
        return self.session.state is not State.CREATED

    @property
    def is_starting(self) -> bool:
        """True until the start has succeeded or failed; the undo of a failure may take longer."""
        return not (self.started or self.removed.is_set() or self.start_error is not None)

    async def wait_started(self) -> None:
        """Wait for the start to succeed; raise its error if it fails."""
        await self._start_finished.wait()
        if self.start_error is not None:
            raise self.start_error

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        """Wait until `reached` holds or the session is removed."""
        while not reached(self.session) and not self.removed.is_set():
            self._changed.clear()
            await self._changed.wait()

    # -- requests ------------------------------------------------------------------------------

    def ask_stop(self, reason: EndReason) -> None:
        """Request a stop; the first reason counts."""
        if self.stop_reason is None:
            self.stop_reason = reason
            self.stop_asked.set()
            self.wake.set()

    def begin_claim(self, request: ClaimRequest) -> PendingClaim:
        """Hand a claim to the session's task."""
        answer = asyncio.get_running_loop().create_future()
        self.pending_claim = PendingClaim(request, answer)
        self.wake.set()
        return self.pending_claim

    def answer_claim(self, error: AgentError | None) -> None:
        """Complete the pending claim, if any."""
        if self.pending_claim is not None:
            self.pending_claim.answer.set_result(error)
            self.pending_claim = None

    # -- changes -------------------------------------------------------------------------------

    async def save(self, session: Session) -> None:
        """Record a change, then apply it, also if the disk is full."""
        await self.record(session)
        self.apply(session)

    async def record(self, session: Session) -> None:
        """Record a change that is applied later, if the disk is not full.

        A removed session stays removed: its changes are not recorded.
        """
        if self.removed.is_set():
            return
        try:
            await self._runtime.records.save(session)
        except DiskFullError as error:
            log.warning("cannot write the record", session=session.internal_id, error=str(error))
            await self._runtime.records.mark_stop(session)

    def apply(self, session: Session) -> None:
        """Replace the session, stamp its sequence and notify the watchers."""
        before = self.session
        self.session = session.with_changes(sequence=self._runtime.feed.stamp())
        self._runtime.metrics.session_changed(before, session)
        _log_change(before, session)
        self._reservations.tls_ports.follow(self.session)
        if session.state is not State.RUNNING:
            ended = StandbyNotClaimableError("it has ended") if session.is_standby else None
            self.answer_claim(ended)
        self._changed.set()
        if self.started:
            self._runtime.feed.session_changed(
                self.session,
                host=session.state is not before.state,
                can_wait=not _is_awaited(before, session),
            )

    def note(self, **changes: object) -> None:
        """Apply changes that the next `save` reports and records."""
        self.session = self.session.with_changes(**changes)

    async def publish(self) -> bool:
        """Write session.json for the game; False when the disk is full."""
        try:
            await self._runtime.records.publish(self.session, self._reservations.drain.now)
        except DiskFullError as error:
            log.warning(
                "cannot write session.json", session=self.session.internal_id, error=str(error)
            )
            return False
        return True

    def arm(self) -> None:
        """Register the session's deadline, if it has one."""
        if self.session.deadline is not None:
            self._runtime.deadlines.arm(self.session.internal_id, self.session.deadline)

    def release(self) -> None:
        """Release the ports and the capacity of the session."""
        self._reservations.release(self.session.internal_id)

    def finish_start(self, error: AgentError | None = None) -> None:
        """Wake waiters of the start; the first error counts, unless the session has started.

        A failed start holds no start slot from now on.
        """
        self.start_error = None if self.started else self.start_error or error
        if self.start_error is not None:
            self._runtime.feed.host_changed(can_wait=True)
        self._start_finished.set()

    def mark_removed(self) -> None:
        """Mark the session as removed and wake all waiters."""
        self.removed.set()
        self._changed.set()


def trace_fields(session: Session) -> dict[str, str]:
    """Return the log fields of the trace of a session, without any if it has none."""
    trace_id = trace_id_of(session.spec.identity.traceparent)
    return {"trace_id": trace_id} if trace_id else {}


def _is_awaited(before: Session, after: Session) -> bool:
    """Return whether a caller may wait until watchers see a change: readiness, or an end.

    The answers to starts, claims and stops report other changes.
    """
    has_ended = after.state.ended and not before.state.ended
    return has_ended or after.ready_time != before.ready_time


def _log_change(before: Session, after: Session) -> None:
    if before.is_standby and not after.is_standby:
        log.info("standby claimed", **_named(after))
    if before.state is after.state:
        return
    if after.state is State.RUNNING and before.state is State.CREATED:
        seconds = (after.start_time or after.create_time) - after.create_time
        named = log.bind(seconds=seconds, image=after.spec.image, **_named(after))
        named.info("standby started" if after.is_standby else "session started")
        unbind("request")  # later log lines do not belong to that request
    elif after.state is State.RUNNING:
        log.info("session restarted", count=after.restart_count, session=after.internal_id)
    elif after.state is State.RESTARTING:
        log.info(
            "session failed, restarting",
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
