"""One start or claim call to a host, and its outcome."""

from collections.abc import Set as AbstractSet
from dataclasses import dataclass

from controlplane.domain.contract import Answer, Claim, HostSession
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentUnavailableError,
    ImageCannotRunError,
    InvalidRequestError,
    Violation,
)
from controlplane.domain.start_failures import HOST_FAULTS, LACK_OF_ROOM, Owner
from controlplane.domain.start_timing import Phase
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.under_way import Start
from controlplane.storage.tables.reports import Verdict
from tiltyard.contract import ErrorReason, Identity, SessionSpec
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

REFUSED_BY_ADMISSION = LACK_OF_ROOM | {
    ErrorReason.IMAGE_MISSING,
    ErrorReason.DISK_FULL,
    ErrorReason.ENGINE_UNAVAILABLE,
    ErrorReason.NOT_ALLOWED,
}
"""The agent refused before it began: the attempt left nothing."""

NOTHING_CLAIMED = frozenset(
    {
        ErrorReason.STANDBY_NOT_CLAIMABLE,
        ErrorReason.NOT_RECONCILED,
        ErrorReason.DRAINING,
        ErrorReason.DISK_FULL,
        ErrorReason.NOT_ALLOWED,
        ErrorReason.INVALID_ARGUMENT,
        ErrorReason.UNIMPLEMENTED,
    }
)


@dataclass(frozen=True, slots=True)
class Confirmed:
    """The host runs the session; its row is confirmed."""

    session: HostSession
    is_to_stop: bool  # A stop was requested meanwhile and is under way


@dataclass(frozen=True, slots=True)
class NothingStarted:
    """The host refused; the attempt left nothing."""

    error: AgentRefusedError


@dataclass(frozen=True, slots=True)
class Unknown:
    """The host did not answer or failed midway: the session may still start."""

    error: AgentRefusedError | AgentUnavailableError


Outcome = Confirmed | NothingStarted | Unknown


class Attempts:
    """Makes start and claim calls."""

    def __init__(self, *, fleet: Fleet, clock: Clock, reach: Reach, metrics: StartMetrics) -> None:
        self._fleet = fleet
        self._clock = clock
        self._reach = reach
        self._metrics = metrics

    async def start(
        self, start: Start, host: Host, internal_id: str, spec: SessionSpec, *, timeout: float
    ) -> Outcome:
        """Start a session on a host.

        Raises:
            ImageCannotRunError: No host can start it.
            InvalidRequestError: No host accepts it.
        """
        identity = spec.identity
        owner = identity.account, identity.application
        try:
            with start.timing.phase(Phase.AGENT):
                answer = await host.client.start_session(internal_id, spec, timeout)
        except AgentRefusedError as error:
            self._note_refusal(host, owner, start.id, error)
            return _refused(error, REFUSED_BY_ADMISSION)
        except AgentUnavailableError as error:
            log.warning("start unknown", agent=host.name, session=internal_id, error=str(error))
            host.in_doubt = True
            return Unknown(error)
        await self._reach("start.answered")
        with start.timing.phase(Phase.CONFIRM):
            confirmed = await self._confirm(start, host, answer, identity)
        host.failures.note_success(owner)
        await self._reach("start.confirmed")
        return confirmed

    async def claim(self, start: Start, host: Host, claim: Claim, timeout: float) -> Outcome:
        """Claim a standby on its host.

        The row has all that the host can answer: it is confirmed later, with others.
        """
        try:
            answer = await host.client.claim_session(claim, timeout)
        except (AgentRefusedError, AgentUnavailableError) as error:
            log.info(
                "standby not claimed", agent=host.name, session=claim.internal_id, error=str(error)
            )
            if isinstance(error, AgentRefusedError):
                return _refused(error, NOTHING_CLAIMED)
            return Unknown(error)
        await self._reach("claim.answered")
        session = self._answered(start, host, answer, claim.identity)
        host.watch.write_soon(session.internal_id)
        return Confirmed(session, is_to_stop=False)

    async def _confirm(
        self, start: Start, host: Host, answer: Answer, identity: Identity
    ) -> Confirmed:
        """Write the host's answer to the row; stop a session that must not run."""
        session = self._answered(start, host, answer, identity)
        internal_id = session.internal_id
        agent = host.name
        reports = self._fleet.reports
        evaluation = await reports.write(agent, (session,), self._clock.time())
        verdict = evaluation.verdicts[internal_id]
        if verdict in {Verdict.STOP, Verdict.STOP_REQUESTED}:
            self._fleet.stop_session(agent, internal_id)
        if verdict is Verdict.KEEP:
            host.note_written(session)
        if session.state.ended:
            host.forget(session)
        return Confirmed(session, verdict is Verdict.STOP_REQUESTED)

    def _answered(
        self, start: Start, host: Host, answer: Answer, identity: Identity
    ) -> HostSession:
        internal_id = answer.session.internal_id
        agent = host.name
        session = host.answered(internal_id, answer)
        host.notify()  # wakes starts that wait for its slot
        log.info(
            "session started",
            session=internal_id,
            id=identity.session_id,
            account=identity.account,
            application=identity.application,
            region=identity.location,
            agent=agent,
            seconds=start.timing.total(),
            warm=bool(session.warm_pool_revision),
        )
        return session

    def _note_refusal(
        self, host: Host, owner: Owner, session_id: str, error: AgentRefusedError
    ) -> None:
        """Record a refusal, and avoid the host if it may be at fault."""
        if error.agent_reason is ErrorReason.IMAGE_CANNOT_RUN:
            raise ImageCannotRunError(error.text) from error
        if error.agent_reason is ErrorReason.INVALID_ARGUMENT:
            raise InvalidRequestError((Violation("body", error.text),)) from error
        if error.agent_reason not in HOST_FAULTS:
            return
        row = host.row
        now = self._fleet.now()
        failure = host.failures.note(owner, error, now, self._clock.time())
        self._metrics.failures.labels(row.region, row.node_pool, error.agent_reason.value).inc()
        log.warning(
            "start failed, the host is avoided",
            agent=row.name,
            id=session_id,
            account=failure.account,
            application=failure.application,
            count=failure.count,
            seconds=round(failure.until - now, 1),
            error=str(error),
        )


def _refused(
    error: AgentRefusedError, harmless: AbstractSet[ErrorReason]
) -> NothingStarted | Unknown:
    return NothingStarted(error) if error.agent_reason in harmless else Unknown(error)
