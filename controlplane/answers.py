"""Answers to starts and claims: noted of the host, written to the database, told to who waits."""

from controlplane.clock import Clock
from controlplane.fleet.contract import Answer, HostSession
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_link import HostLink
from controlplane.pending_start import PendingStart
from controlplane.storage.report_store import ReportStore
from controlplane.storage.settling import Verdict
from tiltyard.journal.events import get_logger

_log = get_logger(__name__)


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
    verdict = await reports.confirm(agent, session, clock.now_ms())
    start.attempt = None
    if verdict is Verdict.STOP:
        fleet.stop_session(agent, internal_id)
    identity = start.spec.identity
    _log.info(
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
