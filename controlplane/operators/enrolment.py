"""Enrolling hosts: tokens for one host each, and certificates for those that bring one.

The text of a token ends with the fingerprint of the authority: the host sends it to no other.
"""

import uuid
from dataclasses import dataclass, field

from controlplane.domain.errors import (
    ConflictError,
    InvalidRequestError,
    TooManyRequestsError,
    UnauthorizedError,
    Violation,
)
from controlplane.domain.names import NAME_RULE, is_name
from controlplane.domain.start_rate import StartRate
from controlplane.domain.tokens import mint, parse
from controlplane.fleet.fleet import Fleet
from controlplane.pki.authority import Issued, UnfitRequestError
from controlplane.pki.issuer import Issuer
from controlplane.settings.model import NOT_AGENTS
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import enrolment
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.enrolment import BadEnrolmentTokenError, Newcomer, Place
from controlplane.storage.tables.fleet import AgentRow
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

_REFUSED = "refused to enrol a host: its token or name"

TOKEN_LIFE = 15 * 60
TRIES_PER_SECOND, TRIES_AT_ONCE = 1.0, 20
"""Of one address: enough for a rack that is set up in one go, too few for guessing."""


@dataclass(frozen=True, slots=True)
class EnrolmentToken:
    """A token for one host; `text` is shown once."""

    text: str
    id: str
    expire: float


@dataclass(frozen=True, slots=True)
class EnrolmentRequest:
    """What a host sends: its token, a signing request as PEM text, and who it wants to be.

    `address` is where it will be dialled, `region` and `node_pool` where it believes to belong.
    """

    token: str
    request: str
    name: str
    address: str
    region: str | None = None
    node_pool: str | None = None


@dataclass(frozen=True, slots=True)
class Enrolment:
    """Use cases of operators, who have been checked, and of hosts, who have not."""

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
        """Make a token that enrols one new host of a region and node pool.

        Raises:
            NotFoundError: There is no such region or node pool.
        """
        token, now = mint(), self.clock.time()
        expire = now + TOKEN_LIFE
        await self.store.run(enrolment.make_token, token, place, caller.actor, now, expire)
        text = f"{token.text}.{self.issuer.authority.fingerprint}"
        return EnrolmentToken(text, token.token_id, expire)

    async def make_token_again(self, caller: Caller, agent: str) -> EnrolmentToken:
        """Make a token with which an agent enrols again, where it belongs, by its name.

        Raises:
            NotFoundError: No such agent is enrolled.
        """
        return await self.make_token(caller, await self.store.run(enrolment.place_of, agent))

    async def enrol(self, wanted: EnrolmentRequest, address: str) -> tuple[AgentRow, Issued]:
        """Enrol a host, whose request came from an address, and dial it from now on.

        Raises:
            TooManyRequestsError: Of this address.
            UnauthorizedError: For every kind of bad token alike; the log has which.
            InvalidRequestError: What it asks for is not what the token is for, or not signed.
            ConflictError: Another agent has its name.
        """
        retry_after = self.rate.take(address, "", self.clock.monotonic())
        if retry_after is not None:
            raise TooManyRequestsError(retry_after)
        presented = parse(wanted.token)
        if presented is None:
            error = BadEnrolmentTokenError("it is none")
            log.warning(_REFUSED, address=address, error=str(error))
            raise error
        agent_id = str(uuid.uuid4())
        issued = self._signed(wanted, agent_id, address)
        newcomer = Newcomer(
            name=wanted.name,
            address=wanted.address,
            region=wanted.region,
            node_pool=wanted.node_pool,
            id=agent_id,
            serial=issued.serial,
            expire=issued.expire,
            authority=issued.authority,
        )
        now = self.clock.time()
        try:
            row = await self.store.run_then(
                self._follow, enrolment.enrol, presented, newcomer, address, now
            )
        except (UnauthorizedError, InvalidRequestError, ConflictError) as error:
            log.warning(_REFUSED, address=address, error=str(error))
            raise
        log.info("agent enrolled", agent=row.name, address=address)
        return row, issued

    async def revoke(self, caller: Caller, name: str) -> None:
        """Trust an agent no more: hang up on it, and take what runs there for lost. Idempotent.

        Raises:
            NotFoundError: There is none of that name.
            ConflictError: It has no certificate.
        """
        now = self.clock.time()
        await self.store.run_then(
            lambda _: self.fleet.remove(name), enrolment.revoke, name, caller.actor, now
        )

    def _signed(self, wanted: EnrolmentRequest, agent_id: str, address: str) -> Issued:
        violations = []
        if not is_name(wanted.name):
            violations.append(Violation("name", NAME_RULE))
        elif wanted.name in NOT_AGENTS:
            violations.append(Violation("name", "is a name of the product itself: take another"))
        if not wanted.address:
            violations.append(Violation("address", "must be given"))
        try:
            issued = self.issuer.sign_agent(wanted.request.encode(), agent_id)
        except UnfitRequestError as error:
            violations.append(Violation("request", str(error)))
        if violations:
            refusal = InvalidRequestError(tuple(violations))
            log.warning("refused to enrol a host", address=address, error=refusal.details)
            raise refusal
        return issued

    def _follow(self, row: AgentRow) -> None:
        self.fleet.remove(row.name)  # it may enrol again
        self.fleet.add(row)
