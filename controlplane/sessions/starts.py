"""POST /session: taking the id, then a standby, or one attempt after another until a host runs it.

The start is a task of its own. The handler waits for it, and a caller that hangs up ends the wait,
not the start. Each attempt has an internal id of its own, committed with its host before the call,
so that whatever a host reports later can be told apart.
"""

import asyncio
import uuid

from controlplane.applications.applications import Applications
from controlplane.applications.tags import Tags
from controlplane.domain.contract import HostSession
from controlplane.domain.errors import (
    AgentRefusedError,
    AgentSilentError,
    NoCapacityCause,
    NotFoundError,
    StoppedDuringStartError,
    StoreError,
    TiltyardError,
)
from controlplane.domain.placement import Wanted
from controlplane.domain.start_rate import StartRate
from controlplane.domain.start_timing import Phase, StartKind, StartTiming
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.link import HostLink
from controlplane.fleet.queue import Ask, HostQueue
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.claims import Claims
from controlplane.sessions.confirm import take_answer, take_refusal
from controlplane.sessions.pending_start import PendingStart, PendingStarts
from controlplane.sessions.start_request import StartRequest, pinned_ports, session_spec
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.reports import ReportStore
from controlplane.storage.tables.sessions import Attempt, SessionStore
from tiltyard.runtime.clock import Clock, unix_ms
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

CALL_SHARE = 0.5
"""Of what a caller waits, at most for one attempt, so that a second host can be tried."""

RESERVE = 1.0
"""Kept of `start_timeout` for what follows the last call: the commit and the answer."""
NOT_STARTED = "not started"
"""The event of every start that came to nothing."""

MIN_CALL = 0.1
"""With less than this left an attempt would only be abandoned."""

FREE_WAIT = 1.0
"""A caller waits so long for its id to be free again; the freeing itself goes on."""

FREE_RETRY = 1.0

MAX_SILENT = 3
"""So many hosts may be silent before the start is given up."""


class Starts:
    """Owns every start under way."""

    def __init__(
        self,
        *,
        applications: Applications,
        tags: Tags,
        sessions: SessionStore,
        reports: ReportStore,
        fleet: Fleet,
        queue: HostQueue,
        start_timeout: float,
        rate: StartRate,
        claims: Claims,
        clock: Clock,
        reach: Reach = no_failpoint,
        metrics: StartMetrics | None = None,
    ) -> None:
        """Call `reach` at the named steps of `failpoints.py`."""
        self._applications = applications
        self._tags = tags
        self._sessions = sessions
        self._reports = reports
        self._fleet = fleet
        self._queue = queue
        self.start_timeout = start_timeout
        self.rate = rate
        self._claims = claims
        self._clock = clock
        self._reach = reach
        self._metrics = metrics or StartMetrics()
        self._tasks = TaskOwner[HostSession](TiltyardError)
        self._freeing = TaskOwner[None]()
        self.under_way = PendingStarts()

    async def start(self, caller: Caller, request: StartRequest) -> HostSession:
        """Start a session and return it as its host answered.

        Raises:
            UnauthorizedError: The account was removed meanwhile.
            NotFoundError: Application, region or tag.
            HostsNotReportedError: The tag, or a host with room for it, is on none that has
                reported since this process started.
            InvalidRequestError: A pin or a name in the environment does not fit.
            ConflictError: The id is taken, or the session was stopped during its start.
            QuotaExceededError: The account's quota is exhausted.
            NoCapacityError: No host can take it now, or too many were started.
            ImageCannotRunError: The engine refuses the image.
        """
        start = PendingStart(
            actor=caller.actor,
            request=request,
            account=caller.account,
            id=request.id or str(uuid.uuid4()),
            deadline=self._clock.monotonic() + self.start_timeout,
            patience=self.start_timeout,
            timing=StartTiming(self._clock.monotonic),
        )
        with self._metrics.refusals():
            self.under_way.add(start)  # before anything is waited for: a DELETE finds it
        name = f"start {start.account}/{start.id!r}"
        session = await self._tasks.finish(self._whole(caller, start), name)
        if start.is_stopped:
            raise StoppedDuringStartError
        return session

    def call_off(self, start: PendingStart) -> None:
        """Have a start try no further host, nor wait for one."""
        start.stop_wanted = True
        if start.ask is not None:
            self._queue.call_off(start.ask)

    async def close(self) -> None:
        """Wait for the starts under way; `start_timeout` bounds them, FREE_WAIT what they free."""
        await self._tasks.wait()
        await self._freeing.close()

    async def _whole(self, caller: Caller, start: PendingStart) -> HostSession:
        try:
            with self._metrics.refusals(), start.timing.phase(Phase.PREPARE):
                await self._prepare(caller, start)
            with self._metrics.counted(start.timing):
                return await self._run(start)
        finally:
            if not start.has_row:
                self.under_way.settle(start)

    async def _prepare(self, caller: Caller, start: PendingStart) -> None:
        request = start.request
        application, tags = await self._applications.startable(caller, request.image)
        ports = pinned_ports(application.ports, request.pins)
        if request.location not in application.regions:
            raise NotFoundError("region", request.location)
        tag, start.no_tag = await self._tags.choose(
            application,
            tags,
            request.location,
            request.version,
            is_served=lambda: self._claims.may_serve(application, request),
            deadline=start.deadline - RESERVE,
        )
        start.spec = session_spec(application, tag, request, start.id, ports)
        start.node_pool = application.node_pool
        start.wanted = Wanted(
            tag.image, application.reservation, ports, (application.account, application.name)
        )

    async def _run(self, start: PendingStart) -> HostSession:
        if start.stop_wanted:
            raise StoppedDuringStartError
        with start.timing.phase(Phase.RESERVE):
            await self._sessions.reserve_session(start.row(unix_ms(self._clock)))
        self.under_way.note_row(start)
        try:
            await self._reach("start.reserved")
            self._take_rate(start)
            with start.naming_failures():
                session = await self._claim(start) or await self._try_hosts(start)
        except Exception as error:
            log.info(NOT_STARTED, account=start.key[0], id=start.key[1], error=str(error))
            freeing = self._freeing.start(self._free(start, str(error)), f"free {start.key!r}")
            await asyncio.wait({freeing}, timeout=FREE_WAIT)
            raise
        start.outcome = session.internal_id
        self.under_way.settle(start)
        return session

    async def _claim(self, start: PendingStart) -> HostSession | None:
        with start.timing.phase(Phase.CLAIM):
            session = await self._claims.claim(start, start.deadline - RESERVE)
        if session is not None:
            start.timing.kind = StartKind.WARM
        return session

    def _take_rate(self, start: PendingStart) -> None:
        retry_after = self.rate.take(start.key[0], start.location, self._clock.monotonic())
        if retry_after is not None:
            why = "too many sessions were started"
            raise start.no_capacity(NoCapacityCause.RATE, why, retry_after)

    async def _free(self, start: PendingStart, why: str) -> None:
        """Free the id and the quota, however long the database is out of order."""
        while True:
            now_ms = unix_ms(self._clock)
            try:
                await self._sessions.free(
                    *start.key, why, now_ms, attempt=start.attempt, attempted=start.attempted
                )
                break
            except StoreError as error:
                log.error(  # noqa: TRY400 - the text says it all
                    "cannot free the id yet",
                    account=start.key[0],
                    id=start.key[1],
                    error=str(error),
                )
                await self._clock.sleep(FREE_RETRY)
        if start.attempt is not None:
            self._fleet.stop_session(start.attempt.agent, start.attempt.internal_id)
        self.under_way.settle(start)

    async def _try_hosts(self, start: PendingStart) -> HostSession:
        if start.no_tag is not None:
            raise start.no_tag
        refused: frozenset[str] = frozenset()
        silent = 0
        while silent < MAX_SILENT:
            internal_id = str(uuid.uuid4())
            link = await self._next_host(start, internal_id, refused)
            try:
                return await self._attempt(start, link, internal_id)
            except AgentRefusedError as error:
                take_refusal(
                    start,
                    link,
                    error,
                    fleet=self._fleet,
                    clock=self._clock,
                    metrics=self._metrics,
                )
                silent += not start.refused
            except AgentSilentError as error:
                log.warning(
                    "start unknown", agent=link.row.name, session=internal_id, error=str(error)
                )
                link.in_doubt = True
                silent += 1
            finally:
                await self._end_attempt(start, link, internal_id)
            refused |= {link.row.name}
        raise start.no_capacity(NoCapacityCause.HOSTS_SILENT, "the hosts do not answer")

    async def _next_host(
        self, start: PendingStart, internal_id: str, refused: frozenset[str]
    ) -> HostLink:
        if start.stop_wanted:
            raise StoppedDuringStartError
        left = self._time_left(start) - MIN_CALL
        if left < 0:
            why = "the time for a start is over"
            raise start.no_capacity(NoCapacityCause.OUT_OF_TIME, why)
        place, account = (start.location, start.node_pool), start.key[0]
        start.ask = Ask(place, account, start.wanted, internal_id, refused)
        with start.timing.phase(Phase.QUEUE):
            link = await self._queue.take_host(start.ask, left)
        if link is None:
            raise StoppedDuringStartError
        return link

    async def _attempt(self, start: PendingStart, link: HostLink, internal_id: str) -> HostSession:
        address = link.host.public_address if link.host is not None else ""
        start.attempt, start.refused = Attempt(internal_id, link.row.name, address), True
        now_ms, first_of = unix_ms(self._clock), None if start.attempted else start.actor
        with start.timing.phase(Phase.COMMIT):
            await self._sessions.begin_attempt(
                *start.key, start.attempt, now_ms, first_of=first_of
            )
        start.attempted, start.refused = True, False
        await self._reach("start.attempted")
        longest = CALL_SHARE * start.patience
        timeout = max(MIN_CALL, min(longest, self._time_left(start)))
        with start.timing.phase(Phase.AGENT):
            answer = await link.client.start_session(internal_id, start.spec, timeout)
        await self._reach("start.answered")
        with start.timing.phase(Phase.CONFIRM):
            session = await take_answer(
                start, link, answer, reports=self._reports, fleet=self._fleet, clock=self._clock
            )
        link.failures.note_success(start.wanted.owner)
        await self._reach("start.confirmed")
        return session

    async def _end_attempt(self, start: PendingStart, link: HostLink, internal_id: str) -> None:
        """Take a failed attempt off the row first, and only then off the host's numbers.

        As long as it holds its start slot, what the host reports of it is left to us.
        """
        if link.holds_answer(internal_id) and start.attempt is None:
            return
        attempt = start.attempt
        try:
            if attempt is not None:
                now_ms = unix_ms(self._clock)
                await self._sessions.end_attempt(
                    *start.key, attempt, now_ms, abandon=not start.refused
                )
                if not start.refused:
                    self._fleet.stop_session(attempt.agent, attempt.internal_id)
                start.attempt = None
        finally:
            self._fleet.give_back(link, internal_id)

    def _time_left(self, start: PendingStart) -> float:
        return start.deadline - RESERVE - self._clock.monotonic()
