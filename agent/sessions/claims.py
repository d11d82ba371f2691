"""How a standby becomes a session.

One claim of a standby is under way at a time, and its session's own task carries it out, as the
only writer of its record:

    claim.begun      → record.json says whose it is, until when, and what was asked for
    claim.recorded   → session.json says so, replaced as a whole
    claim.published  → the process gets the pool's signal
    claim.signalled  → the caller has its answer

From `claim.recorded` on it is claimed, whatever ends the agent: the next run of it goes on from
there, and a game may get its signal twice. Of a game without a signal that is not written.
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
    """Make a session of `request` of a running standby, or join such a claim.

    It returns once that is recorded and the game has been notified, or cannot be. Raises
    StandbyNotClaimableError, and DiskFullError when it cannot be recorded.
    """
    pending, session = life.pending_claim, life.session
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
    """Record the claim that is under way, if any, unless a stop has been asked for."""
    if life.stop_asked.is_set():
        return
    life.claim_or_stop.clear()
    if life.pending_claim is None or not life.session.is_standby:
        return
    await runtime.failpoint("claim.begun")
    session = _claimed(runtime, life.session, life.pending_claim.request)
    try:
        await runtime.records.save(session)
    except DiskFullError as error:
        life.answer_claim(error)
        return
    life.apply(session)
    life.arm()
    await runtime.failpoint("claim.recorded")


async def notify_game(runtime: Runtime, life: Life) -> None:
    """Notify the game of a claim that it does not know of, then answer the claim."""
    session = life.session
    if session.standby is None or session.claim is None:
        return
    if session.claim.notified:
        life.answer_claim(None)  # a repeated one that came before that was recorded
        return
    signal, process = session.standby.claim_signal, session.process
    notified = await life.publish()
    await runtime.failpoint("claim.published")
    if notified and signal and process is not None:
        await ending.send_signal(runtime, session, process, signal)
    await runtime.failpoint("claim.signalled")
    life.answer_claim(None)
    session = life.session.with_changes(claim=Claim(session.claim.request, notified))
    if signal:
        await life.save(session)
    else:  # the next run of the agent publishes it again, and the game reads the same
        life.apply(session)


def checked_request(text: str) -> str:
    """A caller's request when it is JSON, as session.json carries it; empty counts as null."""
    try:
        json.dumps(json.loads(text or "null"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # an escaped lone surrogate fits in no file
        raise InvalidArgumentError("request_json", "it is not JSON") from None
    return text or "null"


def _check_whose(identity: Identity, request: ClaimRequest) -> None:
    if not identity.names_the_same(request.identity):
        raise StandbyNotClaimableError("it is another session's")


def _runs(life: Life) -> bool:
    return life.session.state is State.RUNNING and not life.stop_asked.is_set()


def _check_claimable(life: Life, request: ClaimRequest) -> None:
    session = life.session
    if not _runs(life):
        raise StandbyNotClaimableError("it does not run")
    if request.again:
        return
    if session.standby is not None and session.standby.in_doubt:
        raise StandbyNotClaimableError("it may be claimed already")
    if session.ready_time is None:
        raise StandbyNotClaimableError("it is not ready")


def _claimed(runtime: Runtime, session: Session, request: ClaimRequest) -> Session:
    """The session that a standby becomes; its process keeps the environment that it has."""
    return session.with_changes(
        spec=replace(session.spec, identity=request.identity, ttl=request.ttl),
        standby=session.standby and replace(session.standby, in_doubt=False),
        claim=Claim(request.request),
        deadline=None if request.ttl is None else deadline_by(runtime.clock, request.ttl),
        injected_env=injected_environment(
            runtime.settings.env_prefixes,
            request.identity.session_id,
            session.host,
            session.ports,
        ),
    )
