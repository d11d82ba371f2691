"""Claims of standbys.

A standby has at most one claim in progress. The session's task executes it, as the only writer of
the record:

    claim.begun      → the journal has the record with the new identity, deadline and request
    claim.recorded   → session.json is replaced
    claim.published  → the process gets the pool's signal
    claim.signalled  → the caller gets its response

A recorded claim is final. After a crash the agent's next run completes it, so a game may get its
signal twice. `notified` is not recorded for a pool without a signal.
"""

import asyncio
import json
from dataclasses import replace

from agent.domain.deadlines import deadline_by
from agent.domain.environment import injected_environment
from agent.domain.errors import DiskFullError, InvalidArgumentError, StandbyNotClaimableError
from agent.domain.session import Claim, Session
from agent.sessions import ending
from agent.sessions.life import ClaimRequest, Life
from agent.sessions.runtime import Runtime
from tiltyard.contract import Identity, State


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
    try:
        await runtime.records.save_claim(session)
    except DiskFullError as error:
        life.answer_claim(error)
        return
    life.apply(session)
    life.arm()
    await runtime.failpoint("claim.recorded")


async def notify_game(runtime: Runtime, life: Life) -> None:
    """Notify the game of a recorded claim if that is still due, then answer the claim."""
    session = life.session
    if session.standby is None or session.claim is None:
        return
    if session.claim.notified:
        life.answer_claim(None)  # repeated before `notified` was recorded
        return
    signal = session.standby.claim_signal
    process = session.process
    notified = await life.publish()
    await runtime.failpoint("claim.published")
    if notified and signal and process is not None:
        await ending.send_signal(runtime, session, process, signal)
    await runtime.failpoint("claim.signalled")
    life.answer_claim(None)
    session = life.session.with_changes(claim=Claim(session.claim.request, notified))
    if signal:
        await life.save(session)
    else:  # not recorded: publishing it again after a restart changes nothing
        life.apply(session)


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
