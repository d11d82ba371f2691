"""Enrolment of hosts: tokens for one host each, and certificates in exchange for them.

A token ends with the fingerprint of the authority, which a host verifies before it sends one.
"""

import uuid
from dataclasses import dataclass, field

from controlplane.domain.access.callers import Caller
from controlplane.domain.access.enrolment import (
    BadEnrolmentTokenError,
    EnrolmentRequest,
    Issued,
    Place,
)
from controlplane.domain.access.start_rate import StartRate
from controlplane.domain.access.tokens import mint, parse
from controlplane.domain.errors import (
    ConflictError,
    InvalidRequestError,
    TooManyRequestsError,
    UnauthorizedError,
    Violation,
)
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.names import NAME_RULE, is_name
from controlplane.fleet.fleet import Fleet
from controlplane.pki.authority import UnfitRequestError
from controlplane.pki.issuer import Issuer
from controlplane.settings.model import NOT_AGENTS
from controlplane.storage.engine.store import Store
from controlplane.storage.tables.hosts import enrolment
from controlplane.storage.tables.sessions.session_ends import lose_sessions
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

TOKEN_LIFE = 15 * 60
TRIES_PER_SECOND = 1.0
TRIES_AT_ONCE = 20
"""Per address: enough to set up a rack at once, too few for guessing."""


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """A token for one host; `text` is shown once."""

    text: str
    id: str
    expire: float


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Use cases of authorized operators and of unauthenticated hosts."""

    store: Store
    fleet: Fleet
    issuer: Issuer
    clock: Clock
    rate: StartRate = field(default_factory=lambda: StartRate(TRIES_PER_SECOND, TRIES_AT_ONCE))

    @property
    def authority(self) -> bytes:
        """The authority's certificate as PEM text."""
        return self.issuer.authority.certificate

    async def make_token(self, caller: Caller, place: Place) -> EnrolmentToken:
        """Create a token that enrols one new host of a region and node pool."""
        token = mint()
        now = self.clock.time()
        expire = now + TOKEN_LIFE
        # A rotation must not void the existing tokens in between, or this one would name the
        # former authority and stay valid.
        async with self.issuer.lock:
            await self.store.run(
                enrolment.make_token, token, place, actor=caller.actor, now=now, expire=expire
            )
            fingerprint = self.issuer.authority.fingerprint
        return EnrolmentToken(f"{token.text}.{fingerprint}", token.token_id, expire)

    async def make_token_again(self, caller: Caller, agent: str) -> EnrolmentToken:
        """Create a token with which an agent enrols again, in its place and by its name."""
        return await self.make_token(caller, await self.store.run(enrolment.place_of, agent))

    async def enrol(self, request: EnrolmentRequest, address: str) -> tuple[Agent, Issued]:
        """Enrol a host and dial it from now on. `address`: the source of the request.

        Raises:
            TooManyRequestsError: The address exceeds its rate.
            UnauthorizedError: The token is bad; only the log has the cause.
            InvalidRequestError: The request does not match the token, or is not signed.
            ConflictError: Another agent has its name.
        """
        retry_after = self.rate.take(address, "", self.clock.monotonic())
        if retry_after is not None:
            raise TooManyRequestsError(retry_after)
        agent_id = str(uuid.uuid4())
        now = self.clock.time()
        try:
            presented = parse(request.token)
            if presented is None:
                raise BadEnrolmentTokenError("it is none")
            issued = self._signed(request, agent_id)
            row = await self.store.run(
                enrolment.enrol,
                presented,
                request,
                agent_id=agent_id,
                issued=issued,
                address=address,
                now=now,
            )
        except (UnauthorizedError, InvalidRequestError, ConflictError) as error:
            log.warning("refused to enrol a host", address=address, error=str(error))
            raise
        await self.fleet.caught_up()
        log.info("agent enrolled", agent=row.name, address=address)
        return row, issued

    async def revoke(self, caller: Caller, name: str) -> None:
        """Revoke an agent: close its connection, and give up its sessions as lost. Idempotent.

        The sessions end in portions between other writes; the next start of the control plane
        finishes after a crash.
        """
        now = self.clock.time()
        await self.store.run(enrolment.revoke, name, caller.actor, now)
        await self.fleet.caught_up()
        await self.store.run_in_portions(lose_sessions, name, now)

    def _signed(self, request: EnrolmentRequest, agent_id: str) -> Issued:
        violations = []
        if not is_name(request.name):
            violations.append(Violation("name", NAME_RULE))
        elif request.name in NOT_AGENTS:
            violations.append(Violation("name", "is a reserved name: choose another"))
        if not request.address:
            violations.append(Violation("address", "must be given"))
        try:
            issued = self.issuer.sign_agent(request.signing_request.encode(), agent_id)
        except UnfitRequestError as error:
            violations.append(Violation("request", str(error)))
        if violations:
            raise InvalidRequestError(tuple(violations))
        return issued
