"""Starts that take a ready standby: its claim is committed, then made on its host.

A claim is an attempt like any other: it is the row's before the call, so that whatever comes of it
is somebody's. What the host refuses was never claimed, and the next standby is tried; what it does
not answer goes to the ledger and is stopped. When no standby is left the start is a cold one.
"""

from collections.abc import Callable

from controlplane.domain.contract import Claim, HostSession, Identity
from controlplane.domain.errors import (
    AgentReason,
    AgentRefusedError,
    AgentSilentError,
    StoppedDuringStartError,
)
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.link import HostLink
from controlplane.fleet.host.standbys import Taken
from controlplane.sessions.confirm import take_answer
from controlplane.sessions.pending_start import PendingStart
from controlplane.sessions.start_request import StartRequest, ignored_of_a_claim
from controlplane.storage.tables.applications import Application
from controlplane.storage.tables.claims import Begun, ClaimStore, Guise
from controlplane.storage.tables.reports import ReportStore
from controlplane.storage.tables.sessions import Attempt
from controlplane.storage.tables.warm_pools import WarmPool
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

CALL_SHARE = 0.25
"""Of what a caller waits, at most for one claim: a host writes two files, and a start that goes on
as a cold one needs time, too."""

MIN_CALL = 0.1
"""With less than this left a claim would only be abandoned."""

MAX_SILENT = 2
"""So many hosts may be silent before the start goes on as a cold one."""

MAX_TRIES = 8
"""So many standbys are tried before the start goes on as a cold one, should all be refused."""

_NOTHING_CLAIMED = frozenset(
    {
        AgentReason.STANDBY_NOT_CLAIMABLE,
        AgentReason.NOT_RECONCILED,
        AgentReason.DRAINING,
        AgentReason.DISK_FULL,
        AgentReason.NOT_ALLOWED,
        AgentReason.INVALID_ARGUMENT,
        AgentReason.UNIMPLEMENTED,
    }
)

PoolAt = Callable[[str, str, str], WarmPool | None]
"""Gives the pool of an account, an application and a region."""


class Claims:
    """Takes standbys for starts."""

    def __init__(
        self,
        *,
        store: ClaimStore,
        reports: ReportStore,
        fleet: Fleet,
        pool_at: PoolAt,
        clock: Clock,
        reach: Reach = no_failpoint,
    ) -> None:
        """Call `reach` at the named steps of `failpoints.py`."""
        self._store = store
        self._reports = reports
        self._fleet = fleet
        self._pool_at = pool_at
        self._clock = clock
        self._reach = reach

    def may_serve(self, application: Application, request: StartRequest) -> bool:
        """Tell whether a standby may be ready for a start; a host port is chosen cold."""
        pool = self._pool_at(application.account, application.name, request.location)
        return pool is not None and not request.pins and self._fleet.standbys.has_ready(pool.id)

    async def claim(self, start: PendingStart, deadline: float) -> HostSession | None:
        """Claim a standby for a start; None when it is to go on as a cold one.

        Raises:
            ConflictError: The session was stopped during its start.
            StoreError: The database fails.
        """
        silent = tries = 0
        longest = CALL_SHARE * start.patience
        while silent < MAX_SILENT and tries < MAX_TRIES and not start.request.pins:
            tries += 1
            if start.stop_wanted:
                raise StoppedDuringStartError
            left = deadline - self._clock.monotonic()
            pool = self._pool_of(start)
            if pool is None or left < MIN_CALL:
                return None
            taken = self._fleet.standbys.take(pool.id, self._fleet.takes_claims)
            link = None if taken is None else self._fleet.link(taken.agent)
            if taken is None or link is None:
                return None
            link.begin_claim(taken.standby.internal_id)
            try:
                session = await self._attempt(start, link, taken, pool, min(longest, left))
            finally:
                link.end_claim(taken.standby.internal_id)
            if session is not None:
                return session
            silent += not start.refused
        return None

    def _pool_of(self, start: PendingStart) -> WarmPool | None:
        identity = start.spec.identity
        return self._pool_at(identity.account, identity.application, identity.location)

    async def _attempt(
        self, start: PendingStart, link: HostLink, taken: Taken, pool: WarmPool, timeout: float
    ) -> HostSession | None:
        """Claim one standby; None when it is not the session's."""
        agent, standby = link.row.name, taken.standby
        before = Guise(start.key[1], start.spec.identity.tag, start.spec.identity.labels)
        claim = _claim(start, standby, pool)
        host = link.host.public_address if link.host is not None else ""
        attempt = Attempt(standby.internal_id, agent, host)
        start.refused = True
        begun = await self._begin(start, attempt, claim)
        if begun is not Begun.YES:
            if begun is Begun.NO:  # else it stays taken: its id means something else
                self._give_back(link, taken, is_free=True)
            return None
        try:
            await self._reach("claim.attempted")
            answer = await link.client.claim_session(claim, timeout)
            await self._reach("claim.answered")
            session = await take_answer(
                start, link, answer, reports=self._reports, fleet=self._fleet, clock=self._clock
            )
            await self._reach("claim.confirmed")
        except (AgentRefusedError, AgentSilentError) as error:
            reason = error.agent_reason if isinstance(error, AgentRefusedError) else None
            start.refused = reason in _NOTHING_CLAIMED
            is_free = start.refused and reason is not AgentReason.STANDBY_NOT_CLAIMABLE
            log.info(
                "standby not claimed",
                agent=agent,
                session=standby.internal_id,
                error=str(error),
            )
            await self._end(start, attempt, before)
            if start.refused:
                self._give_back(link, taken, is_free=is_free)
            if is_free or not start.refused:  # another host may do better
                self._fleet.standbys.set_aside(agent)
            return None
        return session

    def _give_back(self, link: HostLink, taken: Taken, *, is_free: bool) -> None:
        """Have a standby in line again: at once when it `is_free`, else once its host told of it.

        It may have done so while the standby was taken.
        """
        standbys, seen = self._fleet.standbys, link.session(taken.standby.internal_id)
        standbys.give_back(taken)
        is_known = seen is not None and self._fleet.link(taken.agent) is link
        if is_known and seen is not None and (is_free or seen is not taken.standby):
            standbys.note(taken.agent, seen)

    async def _begin(self, start: PendingStart, attempt: Attempt, claim: Claim) -> Begun:
        """Have the claim be the row's; a start without an id has the standby's from now on."""
        start.attempt = attempt
        first_of = None if start.attempted else start.actor
        begun = await self._store.begin(
            start.key, attempt, claim, unix_ms(self._clock), first_of=first_of
        )
        if begun is Begun.YES:
            start.attempted = True
            start.be_called(claim.identity.session_id)
        else:
            start.attempt = None
        return begun

    async def _end(self, start: PendingStart, attempt: Attempt, before: Guise) -> None:
        """Take a failed claim off the row, which has its own id again."""
        key, abandon = start.key, not start.refused
        await self._store.end(key, attempt, before, unix_ms(self._clock), abandon=abandon)
        start.attempt = None
        if key[1] != before.id:
            start.be_called(before.id)
            start.attempted = False
        if abandon:
            self._fleet.stop_session(attempt.agent, attempt.internal_id)


def _claim(start: PendingStart, standby: HostSession, pool: WarmPool) -> Claim:
    asked = start.spec.identity
    identity = Identity(
        account=asked.account,
        session_id=start.request.id or standby.internal_id,
        application=asked.application,
        tag=standby.identity.tag,
        location=asked.location,
        labels=pool.labels,
        external_id=asked.external_id,
    )
    return Claim(
        standby.internal_id, identity, start.request.ttl, ignored_of_a_claim(start.request)
    )
