"""Claims of standbys.

A standby has at most one claim in progress. The session's task executes it, as the only writer of
the record:

    claim.begun      → the journal has the record with the new identity, deadline and request
    claim.recorded   → session.json is replaced
    claim.published  → the processes that handle the pool's signal get it
    claim.signalled  → the caller gets its response

A process without a handler would end by the signal. So if no process has one yet, the caller gets
its response, and the session's task looks again for LISTEN_SECONDS. Process 1 never gets it: to an
init of the image it may be the order to end everything.

A recorded claim is final. After a crash the agent's next run completes it, so a game may get its
signal twice. `notified` is not recorded for a pool without a signal.
"""

import asyncio
import enum
import json
from dataclasses import replace

from agent.domain.errors import (
    AgentError,
    DiskFullError,
    InvalidArgumentError,
    StandbyNotClaimableError,
)
from agent.domain.sessions.deadlines import deadline_by
from agent.domain.sessions.environment import injected_environment
from agent.domain.sessions.session import Claim, Session
from agent.domain.sessions.stopping import signal_number
from agent.sessions.life import ClaimRequest, Life, trace_fields
from agent.sessions.runtime import Runtime
from tiltyard.contract import Identity, State
from tiltyard.runtime.logging.events import bind, get_logger

log = get_logger(__name__)

LISTEN_SECONDS = 10.0  # How long a game may take, after a claim, to handle the pool's signal
LOOK_SECONDS = 0.1  # Between two looks at which processes do


class SignalOutcome(enum.Enum):
    """The result of sending the signal of a claim; the texts are those of reports."""

    SENT = "sent"  # To all processes that handle it
    NOT_CAUGHT = "no process has a handler for it"
    IGNORED = "the game ignores it"
    NOT_SENT = "it could not be sent"


async def claim(life: Life, request: ClaimRequest) -> None:
    """Claim a running standby, or join a claim of the same identity.

    Returns once the claim is recorded and notifying the game was attempted. Raises
    StandbyNotClaimableError, or DiskFullError when it cannot be recorded.
    """
    pending = life.pending_claim
    session = life.session
    if pending is not None:
        _check_whose(pending.request.identity, request)
    elif session.is_standby:
        _check_claimable(life, request)
        pending = life.begin_claim(request)
    else:
        _check_whose(session.spec.identity, request)
        if session.claim is None or session.claim.notified or not _runs(life):
            return
        pending = life.begin_claim(request)  # recorded, but the game was not notified
    error = await asyncio.shield(pending.answer)
    if error is not None:
        raise error


async def take(runtime: Runtime, life: Life) -> None:
    """Record the pending claim, if any."""
    if life.pending_claim is None or not life.session.is_standby:
        return
    await runtime.failpoint("claim.begun")
    session = _claimed(runtime, life.session, life.pending_claim.request)
    bind(**trace_fields(session))
    try:
        await runtime.records.save_claim(session)
    except DiskFullError as error:
        life.answer_claim(error)
        return
    life.apply(session)
    life.arm()
    await runtime.failpoint("claim.recorded")


class Notifier:
    """Notifies the game of a recorded claim, in the session's task."""

    def __init__(self, runtime: Runtime, life: Life) -> None:
        self._runtime = runtime
        self._life = life
        self._give_up: float | None = None
        """Monotonic time; None while no claim is due."""
        self._is_published = False

    async def step(self) -> float | None:
        """Publish a claim and send its signal if that is due, then answer the claim.

        Returns the seconds until the next step if no process handles the signal yet.
        """
        life = self._life
        session = life.session
        if session.standby is None or session.claim is None:
            return None
        if session.claim.notified:
            life.answer_claim(None)  # repeated before `notified` was recorded
            return None
        clock = self._runtime.clock
        if self._give_up is None:
            self._is_published = await life.publish()
            await self._runtime.failpoint("claim.published")
            self._give_up = clock.monotonic() + LISTEN_SECONDS
        outcome = None
        if self._is_published and session.standby.claim_signal:
            outcome = await self._signal(session.standby.claim_signal)
        if (
            outcome is not None
            and outcome is not SignalOutcome.SENT
            and clock.monotonic() < self._give_up
        ):
            # The session may end before its game listens.
            life.note(claim=replace(session.claim, signal_missed=outcome.value))
            life.answer_claim(None)  # the session is the caller's, whenever its game listens
            return LOOK_SECONDS
        await self._finish(session.claim, outcome)
        return None

    async def _finish(self, claim: Claim, outcome: SignalOutcome | None) -> None:
        life = self._life
        runtime = self._runtime
        self._give_up = None
        await runtime.failpoint("claim.signalled")
        life.answer_claim(None)
        missed = "" if outcome in {None, SignalOutcome.SENT} else outcome.value
        if missed:
            log.warning("claim signal not sent", session=life.session.internal_id, error=missed)
        life.note(claim=Claim(claim.request, self._is_published, signal_missed=missed))
        standby = life.session.standby
        if standby is not None and standby.claim_signal:
            # Otherwise it is not recorded: publishing it again after a restart changes nothing.
            await life.record(life.session)

    async def _signal(self, signal: str) -> SignalOutcome:
        """Send a signal to the processes that handle it, and to no other: it might end them."""
        session = self._life.session
        number = signal_number(signal)
        engine = self._runtime.engine
        if session.process is None or number is None:
            return SignalOutcome.NOT_CAUGHT
        try:
            members = await engine.processes(session.process)
            below = [member for member in members if member.process != session.process]
            listening = [member.process for member in below if member.listens_for(number)]
            for process in listening:
                await engine.signal_process(process, signal)
        except AgentError as error:
            internal_id = session.internal_id
            log.warning(
                "cannot send a signal", session=internal_id, signal=signal, error=str(error)
            )
            return SignalOutcome.NOT_SENT
        if listening:
            return SignalOutcome.SENT
        ignores = any(member.ignores(number) for member in below)
        return SignalOutcome.IGNORED if ignores else SignalOutcome.NOT_CAUGHT


def checked_request(text: str) -> str:
    """Validate a caller's request as JSON for session.json; empty becomes null."""
    try:
        json.dumps(json.loads(text or "null"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # an escaped lone surrogate cannot be encoded
        raise InvalidArgumentError("request_json", "it is not JSON") from None
    return text or "null"


def _check_whose(identity: Identity, request: ClaimRequest) -> None:
    if not identity.names_the_same(request.identity):
        raise StandbyNotClaimableError("it belongs to another session")


def _runs(life: Life) -> bool:
    return life.session.state is State.RUNNING and not life.stop_asked.is_set()


def _check_claimable(life: Life, request: ClaimRequest) -> None:
    session = life.session
    if not _runs(life):
        raise StandbyNotClaimableError("it is not running")
    if request.again:
        return
    if session.standby is not None and session.standby.in_doubt:
        raise StandbyNotClaimableError("it may be claimed already")
    if session.ready_time is None:
        raise StandbyNotClaimableError("it is not ready")


def _claimed(runtime: Runtime, session: Session, request: ClaimRequest) -> Session:
    """The claimed session; its process keeps its old environment."""
    return session.with_changes(
        spec=replace(session.spec, identity=request.identity, ttl=request.ttl),
        standby=session.standby and replace(session.standby, in_doubt=False),
        claim=Claim(request.request),
        deadline=None if request.ttl is None else deadline_by(runtime.clock, request.ttl),
        injected_env=injected_environment(
            runtime.settings.env_prefixes, request.identity.session_id, session.host, session.ports
        ),
    )
