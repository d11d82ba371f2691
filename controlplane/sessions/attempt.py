"""One start or claim call to a host, and its outcome."""

from collections.abc import Set as AbstractSet

from controlplane.domain.errors import (
    AgentRefusedError,
    AgentUnavailableError,
    ImageCannotRunError,
    InvalidRequestError,
    Violation,
)
from controlplane.domain.hosts.contract import Answer, Claim, HostSession
from controlplane.domain.placement.start_failures import HOST_FAULTS, LACK_OF_ROOM, Owner
from controlplane.domain.sessions.adoption import Verdict
from controlplane.domain.sessions.start_timing import Phase, StartTiming
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.host.reports import Reports
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.hold import Confirmed, Hold, NothingStarted, Outcome, Unknown
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
"""Reasons of refusals before the agent began: the attempt left nothing."""

NOTHING_STARTED = REFUSED_BY_ADMISSION | {
    ErrorReason.IMAGE_CANNOT_RUN,
    ErrorReason.INVALID_ARGUMENT,
}
"""Reasons after which no program was executed: the agent removes what it had created."""

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


class Attempts:
    """Makes start and claim calls."""

    def __init__(
        self,
        *,
        fleet: Fleet,
        reports: Reports,
        clock: Clock,
        reach: Reach,
        metrics: StartMetrics,
    ) -> None:
        self._fleet = fleet
        self._reports = reports
        self._clock = clock
        self._reach = reach
        self._metrics = metrics

    async def call_start(
        self, hold: Hold, spec: SessionSpec, *, timing: StartTiming, timeout: float
    ) -> Outcome:
        """Start a session on a host.

        Raises:
            ImageCannotRunError: No host can start it.
            InvalidRequestError: No host accepts it.
        """
        hold.is_called = True
        await self._reach("start.attempted")
        hold.outcome = await self._start(hold, spec, timing, timeout)
        if isinstance(hold.outcome, NothingStarted):
            _raise_if_final(hold.outcome.error)
        return hold.outcome

    async def call_claim(
        self, hold: Hold, claim: Claim, *, timing: StartTiming, timeout: float
    ) -> Outcome:
        """Claim a standby on its host.

        The row has all that the host can answer: it is confirmed later, with others. A host that
        refuses any claim is in doubt until its next report.
        """
        hold.is_called = True
        await self._reach("claim.attempted")
        hold.outcome = await self._claim(hold.host, claim, timing, timeout)
        if not (isinstance(hold.outcome, Confirmed) or is_refused_alone(hold.outcome)):
            hold.host.state.doubt()
        return hold.outcome

    async def _start(
        self, hold: Hold, spec: SessionSpec, timing: StartTiming, timeout: float
    ) -> Outcome:
        host = hold.host
        internal_id = hold.attempt.internal_id
        owner = spec.identity.account, spec.identity.application
        try:
            with timing.phase(Phase.AGENT):
                answer = await host.state.client.start_session(internal_id, spec, timeout)
        except AgentRefusedError as error:
            if error.agent_reason in HOST_FAULTS:
                self._avoid(host, owner, spec.identity.session_id, error)
            return _refused(error, NOTHING_STARTED)
        except AgentUnavailableError as error:
            log.warning("start unknown", agent=host.name, session=internal_id, error=str(error))
            host.state.doubt()
            return Unknown(error)
        await self._reach("start.answered")
        with timing.phase(Phase.CONFIRM):
            confirmed = await self._confirm(timing, host, answer, spec.identity)
        host.state.note_success(owner)
        await self._reach("start.confirmed")
        return confirmed

    async def _claim(
        self, host: Host, claim: Claim, timing: StartTiming, timeout: float
    ) -> Outcome:
        known = host.state.seen(claim.internal_id)
        try:
            answer = await host.state.client.claim_session(claim, timeout, known)
        except (AgentRefusedError, AgentUnavailableError) as error:
            log.info(
                "standby not claimed", agent=host.name, session=claim.internal_id, error=str(error)
            )
            if isinstance(error, AgentRefusedError):
                return _refused(error, NOTHING_CLAIMED)
            return Unknown(error)
        await self._reach("claim.answered")
        session = self._answered(timing, host, answer, claim.identity)
        host.watch.write_soon(session.internal_id)
        return Confirmed(session, is_to_stop=False)

    async def _confirm(
        self, timing: StartTiming, host: Host, answer: Answer, identity: Identity
    ) -> Confirmed:
        """Write the host's answer to the row; stop a session that must not run."""
        session = self._answered(timing, host, answer, identity)
        host.state.notify()  # wakes starts that wait for its slot; a claim has none
        internal_id = session.internal_id
        agent = host.name
        verdicts = await self._reports.write(agent, (session,), self._clock.time())
        verdict = verdicts[internal_id]
        is_to_stop = verdict in {Verdict.STOP, Verdict.STOP_REQUESTED}
        if is_to_stop and not host.state.removed:
            host.stops.stop_session(internal_id)
        if verdict is Verdict.KEEP:
            host.state.note_written(session)
        if session.state.ended:
            host.state.forget(session)
        return Confirmed(session, verdict is Verdict.STOP_REQUESTED)

    def _answered(
        self, timing: StartTiming, host: Host, answer: Answer, identity: Identity
    ) -> HostSession:
        internal_id = answer.session.internal_id
        agent = host.name
        session = host.state.answered(internal_id, answer)
        log.info(
            "session started",
            session=internal_id,
            id=identity.session_id,
            account=identity.account,
            application=identity.application,
            region=identity.location,
            agent=agent,
            seconds=timing.total(),
            warm=bool(session.warm_pool_revision),
        )
        return session

    def _avoid(self, host: Host, owner: Owner, session_id: str, error: AgentRefusedError) -> None:
        """Avoid a host on which a start has failed."""
        row = host.state.row
        now = self._fleet.now()
        failure = host.state.note_failure(owner, error, now, self._clock.time())
        host.state.notify()
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


def is_refused_alone(outcome: Outcome | None) -> bool:
    """Return whether a host has refused one standby, and may accept claims of others."""
    if not isinstance(outcome, NothingStarted):
        return False
    return outcome.error.agent_reason is ErrorReason.STANDBY_NOT_CLAIMABLE


def _raise_if_final(error: AgentRefusedError) -> None:
    """Raise the error of a start that every host would refuse."""
    if error.agent_reason is ErrorReason.IMAGE_CANNOT_RUN:
        raise ImageCannotRunError(error.text) from error
    if error.agent_reason is ErrorReason.INVALID_ARGUMENT:
        raise InvalidRequestError((Violation("body", error.text),)) from error


def _refused(
    error: AgentRefusedError, harmless: AbstractSet[ErrorReason]
) -> NothingStarted | Unknown:
    return NothingStarted(error) if error.agent_reason in harmless else Unknown(error)
