"""How a standby becomes a session.

One claim of a standby is under way at a time, and its session's own task carries it out, as the
only writer of its record:

    claim.begun      → record.json says whose it is, until when, and what was asked for
    claim.recorded   → session.json says so, replaced as a whole
    claim.published  → the process gets the pool's signal
    claim.signalled  → the caller has its answer

From `claim.recorded` on it is claimed, whatever ends the agent: the next run of it goes on from
there, and a game may get its signal twice. That a game without a signal was told is not written.
"""

import asyncio
import json
from dataclasses import dataclass, replace
from typing import Protocol

from agent.domain.deadlines import deadline_by
from agent.domain.environment import injected_environment
from agent.domain.errors import AgentError, DiskFull, InvalidArgument, StandbyNotClaimable
from agent.domain.session import Claim, Identity, Session, State
from agent.sessions import ending
from agent.sessions.runtime import Runtime


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


class Claimed(Protocol):
    """A standby that lives; `Lifecycle` is one. `stop_asked` is set once it shall end."""

    stop_asked: asyncio.Event

    @property
    def session(self) -> Session:
        """The session as it stands."""
        ...

    async def publish(self) -> bool:
        """Have the game read what holds now; False when it could not be written."""
        ...

    def take_in(self, session: Session) -> None:
        """Take in a change that is recorded."""
        ...

    async def save_and_set(self, session: Session) -> None:
        """Record a change, then tell it."""
        ...

    def arm(self) -> None:
        """Have the session come due when its lifetime is over."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class _UnderWay:
    request: ClaimRequest
    answer: asyncio.Future[AgentError | None]


class Claiming:
    """The claim that a standby is under."""

    def __init__(self) -> None:
        self.asked = asyncio.Event()
        """Set once somebody claims it, and once it shall end."""
        self._now: _UnderWay | None = None

    @property
    def under_way(self) -> bool:
        """True from the claim until its answer."""
        return self._now is not None

    async def claim(self, life: Claimed, request: ClaimRequest) -> None:
        """Have a running session be of `request`, or join such a claim.

        It returns once that is recorded and the game was told, or cannot be told. Raises
        StandbyNotClaimable, and DiskFull when it could not be recorded.
        """
        now, session = self._now, life.session
        if now is not None:
            _check_whose(now.request.identity, request)
        elif session.is_standby:
            _check_claimable(life, request)
            now = self._begin(request)
        else:
            _check_whose(session.spec.identity, request)
            if session.claim is None or session.claim.told or not _runs(life):
                return
            now = self._begin(request)  # it is recorded, but the game was not told
        error = await asyncio.shield(now.answer)
        if error is not None:
            raise error

    def follow(self, session: Session) -> None:
        """Refuse what was not recorded before the session came to its end."""
        if session.state is not State.RUNNING:
            self._settle(StandbyNotClaimable("it has ended") if session.is_standby else None)

    async def take(self, runtime: Runtime, life: Claimed) -> None:
        """Record the claim that is under way, if any, unless the session shall end."""
        if life.stop_asked.is_set():
            return
        self.asked.clear()
        if self._now is None or not life.session.is_standby:
            return
        await runtime.failpoint("claim.begun")
        session = _claimed(runtime, life.session, self._now.request)
        try:
            await runtime.records.save(session)
        except DiskFull as error:
            self._settle(error)
            return
        life.take_in(session)
        life.arm()
        await runtime.failpoint("claim.recorded")

    async def tell(self, runtime: Runtime, life: Claimed) -> None:
        """Tell the game of a claim that it was not told of, and then whoever claimed it."""
        session = life.session
        if session.standby is None or session.claim is None:
            return
        if session.claim.told:
            self._settle(None)  # whoever repeated it before that was recorded
            return
        signal, process = session.standby.claim_signal, session.process
        told = await life.publish()
        await runtime.failpoint("claim.published")
        if told and signal and process is not None:
            await ending.send_signal(runtime, session, process, signal)
        await runtime.failpoint("claim.signalled")
        self._settle(None)
        session = life.session.with_changes(claim=Claim(session.claim.request, told))
        if signal:
            await life.save_and_set(session)
        else:  # the next run of the agent tells it again, and the game reads the same
            life.take_in(session)

    def _begin(self, request: ClaimRequest) -> _UnderWay:
        self._now = _UnderWay(request, asyncio.get_running_loop().create_future())
        self.asked.set()
        return self._now

    def _settle(self, answer: AgentError | None) -> None:
        if self._now is not None:
            self._now.answer.set_result(answer)
            self._now = None


def checked_request(text: str) -> str:
    """A caller's request when it is JSON, as session.json carries it; empty counts as null."""
    try:
        json.dumps(json.loads(text or "null"), ensure_ascii=False).encode()
    except (ValueError, RecursionError):  # an escaped lone surrogate fits in no file
        raise InvalidArgument("request_json", "it is not JSON") from None
    return text or "null"


def _check_whose(identity: Identity, request: ClaimRequest) -> None:
    if not identity.names_the_same(request.identity):
        raise StandbyNotClaimable("it is somebody else's")


def _runs(life: Claimed) -> bool:
    return life.session.state is State.RUNNING and not life.stop_asked.is_set()


def _check_claimable(life: Claimed, request: ClaimRequest) -> None:
    session = life.session
    if not _runs(life):
        raise StandbyNotClaimable("it does not run")
    if request.again:
        return
    if session.standby is not None and session.standby.in_doubt:
        raise StandbyNotClaimable("it may be somebody's already")
    if session.ready_time is None:
        raise StandbyNotClaimable("it is not ready")


def _claimed(runtime: Runtime, session: Session, request: ClaimRequest) -> Session:
    """The session that a standby becomes; its process keeps the environment that it has."""
    standby = session.standby and replace(session.standby, in_doubt=False)
    return session.with_changes(
        spec=replace(session.spec, identity=request.identity, ttl=request.ttl),
        standby=standby,
        claim=Claim(request.request),
        deadline=None if request.ttl is None else deadline_by(runtime.clock, request.ttl),
        injected_env=injected_environment(
            runtime.settings.env_prefixes,
            request.identity.session_id,
            session.host,
            session.ports,
        ),
    )
