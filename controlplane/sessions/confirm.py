"""What hosts answer to starts and claims: noted of the host, and written to the database."""

from controlplane.domain.contract import Answer, HostSession
from controlplane.domain.errors import (
    AgentReason,
    AgentRefusedError,
    ImageCannotRunError,
    InvalidRequestError,
    Violation,
)
from controlplane.domain.start_failures import HOST_FAULTS, LACK_OF_ROOM
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.link import HostLink
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.pending_start import PendingStart
from controlplane.storage.tables.reports import ReportStore
from controlplane.storage.tables.settling import Verdict
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


REFUSED_BY_ADMISSION = LACK_OF_ROOM | {
    AgentReason.IMAGE_MISSING,
    AgentReason.DISK_FULL,
    AgentReason.ENGINE_UNAVAILABLE,
    AgentReason.NOT_ALLOWED,
}
"""The agent answered before it began: nothing is left of the attempt."""


async def take_answer(
    start: PendingStart,
    link: HostLink,
    answer: Answer,
    *,
    reports: ReportStore,
    fleet: Fleet,
    clock: Clock,
) -> HostSession:
    """Make the session of a start be what its host answered, and return the newest known of it.

    What is to end by now is stopped.

    Raises:
        StoreError: It cannot be written; what came of the attempt is unknown as before.
    """
    internal_id, agent = answer.session.internal_id, link.row.name
    session = link.answered(internal_id, answer)
    fleet.tell_change(link)  # its slot is free, and theirs who wait for one
    verdict = await reports.confirm(agent, session, unix_ms(clock))
    start.attempt = None
    start.is_stopped |= verdict is Verdict.STOP_REQUESTED
    if verdict in {Verdict.STOP, Verdict.STOP_REQUESTED}:
        fleet.stop_session(agent, internal_id)
    identity = start.spec.identity
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
    if session.state.ended:
        link.forget(session)
    return session


def take_refusal(
    start: PendingStart,
    link: HostLink,
    error: AgentRefusedError,
    *,
    fleet: Fleet,
    clock: Clock,
    metrics: StartMetrics,
) -> None:
    """Note why a host did not make a start, and avoid the host if it may be at fault.

    Raises:
        ImageCannotRunError: No host can make it.
        InvalidRequestError: No host takes it.
    """
    if error.agent_reason is AgentReason.IMAGE_CANNOT_RUN:
        raise ImageCannotRunError(error.text) from error
    if error.agent_reason is AgentReason.INVALID_ARGUMENT:
        raise InvalidRequestError((Violation("body", error.text),)) from error
    if error.agent_reason in HOST_FAULTS:
        row, now = link.row, fleet.now()
        failure = link.failures.note(start.wanted.owner, error, now, unix_ms(clock))
        metrics.failed(row.region, row.node_pool, error.agent_reason.value)
        log.warning(
            "start failed, the host is avoided",
            agent=row.name,
            id=start.key[1],
            account=failure.account,
            application=failure.application,
            count=failure.count,
            seconds=round(failure.until - now, 1),
            error=str(error),
        )
    if error.agent_reason not in LACK_OF_ROOM:
        start.failure = error
    start.refused = error.agent_reason in REFUSED_BY_ADMISSION
