"""POST /session: taking the id, then one attempt after another until a host runs the session.

The start is a task of its own. The handler waits for it, and a caller that hangs up ends the wait,
not the start. Each attempt has an internal id of its own, committed with its host before the call,
so that whatever a host reports later can be told apart.
"""

import asyncio
import logging
import uuid
from dataclasses import dataclass, field, replace

from controlplane.applications import Applications
from controlplane.clock import Clock
from controlplane.errors import (
    AgentReason,
    AgentRefusedError,
    AgentSilentError,
    ConflictError,
    ImageCannotRunError,
    InvalidRequestError,
    NoCapacityError,
    NotFoundError,
    QuotaExceededError,
    StoreError,
    UnauthorizedError,
    Violation,
)
from controlplane.failpoints import Reach, go_on
from controlplane.fleet.contract import HostSession, SessionSpec
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host_link import HostLink
from controlplane.fleet.placement import Wanted
from controlplane.start_rate import StartRate
from controlplane.start_request import StartRequest, pinned_ports, session_spec
from controlplane.storage.account_store import AccountGone, Caller
from controlplane.storage.report_store import ReportStore
from controlplane.storage.session_store import (
    Attempt,
    IdTaken,
    NewSession,
    QuotaExceeded,
    SessionStore,
)
from controlplane.storage.settling import Verdict
from controlplane.storage.store import Actor
from controlplane.tags import Tags
from controlplane.ticket_key import TicketKey

_log = logging.getLogger(__name__)

CALL_TIMEOUT = 4.0
"""At most for one attempt: half of what a caller waits, so that a second host can be tried."""

RESERVE = 1.0
"""Kept of `start_timeout` for what follows the last call: the commit and the answer."""

MIN_CALL = 0.1
"""With less than this left an attempt would only be abandoned."""

FREE_WAIT = 1.0
"""A caller waits so long for its id to be free again; the freeing itself goes on."""

FREE_RETRY = 1.0

MAX_SILENT = 3
"""So many hosts may be silent before the start is given up."""

RETRY_AFTER = 5
"""Seconds after which a region without room is worth another try: hosts report every 2 s."""

REFUSED_BY_ADMISSION = frozenset(
    {
        AgentReason.NO_CAPACITY,
        AgentReason.NO_FREE_PORT,
        AgentReason.PORT_TAKEN,
        AgentReason.PORT_OUT_OF_RANGE,
        AgentReason.START_QUEUE_FULL,
        AgentReason.NOT_RECONCILED,
        AgentReason.DRAINING,
        AgentReason.IMAGE_MISSING,
        AgentReason.DISK_FULL,
        AgentReason.ENGINE_UNAVAILABLE,
        AgentReason.NOT_ALLOWED,
    }
)
"""The agent answered before it began: nothing is left of the attempt."""


@dataclass(slots=True, eq=False)
class _Start:
    """A start under way."""

    actor: Actor
    spec: SessionSpec
    node_pool: str
    wanted: Wanted
    deadline: float
    stop_wanted: bool = False
    """A DELETE came during the start: no further host is tried."""
    attempt: Attempt | None = None
    """The attempt under way, or what it became: the one that may have come to something."""
    attempted: bool = False
    """There was an attempt, so that the audit knows of the session."""
    refused: bool = False
    """Nothing came of the attempt under way: its host said so before it began."""
    outcome: str | None = None
    """The internal id of the session that it became."""
    settled: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def key(self) -> tuple[str, str]:
        return self.spec.identity.account, self.spec.identity.session_id

    @property
    def location(self) -> str:
        return self.spec.identity.location

    def no_capacity(self, why: str, retry_after: int = RETRY_AFTER) -> NoCapacityError:
        return NoCapacityError(self.location, why, retry_after)


@dataclass(frozen=True, slots=True)
class Settled:
    """What came of a start; `internal_id` is None when nothing did."""

    internal_id: str | None


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
        start_timeout: float,
        rate: StartRate,
        ticket_key: TicketKey,
        clock: Clock,
        reach: Reach = go_on,
    ) -> None:
        """Call `reach` at the named steps of `failpoints.py`."""
        self._applications = applications
        self._tags = tags
        self._sessions = sessions
        self._reports = reports
        self._fleet = fleet
        self._start_timeout = start_timeout
        self._rate = rate
        self._ticket_key = ticket_key
        self._clock = clock
        self._reach = reach
        self._tasks: set[asyncio.Task[HostSession]] = set()
        self._freeing: set[asyncio.Task[None]] = set()
        self._under_way: dict[tuple[str, str], _Start] = {}

    async def start(self, caller: Caller, request: StartRequest) -> HostSession:
        """Start a session and return it as its host answered.

        Raises:
            UnauthorizedError: The account was removed meanwhile.
            NotFoundError: Application, region or tag.
            InvalidRequestError: A pin or a name in the environment does not fit.
            ConflictError: The id is taken, or the session was stopped during its start.
            QuotaExceededError: The account's quota is exhausted.
            NoCapacityError: No host can take it now, or too many were started.
            ImageCannotRunError: The engine refuses the image.
        """
        start = await self._prepare(caller, request)
        task = asyncio.create_task(self._run(start), name=f"start {start.key!r}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        session = await asyncio.shield(task)
        if start.stop_wanted:
            raise _stopped()
        return session

    async def settle(self, account: str, session_id: str) -> Settled | None:
        """End the start of a session and wait for what came of it; None when none is under way."""
        start = self._under_way.get((account, session_id))
        if start is None:
            return None
        start.stop_wanted = True
        self._fleet.wake()
        await start.settled.wait()
        return Settled(start.outcome)

    async def close(self) -> None:
        """Wait for the starts under way; `start_timeout` bounds them, FREE_WAIT what they free."""
        if self._tasks:
            await asyncio.wait(self._tasks)
        for task in self._freeing:
            task.cancel()
        await asyncio.gather(*self._freeing, return_exceptions=True)

    async def _prepare(self, caller: Caller, request: StartRequest) -> _Start:
        deadline = self._clock.monotonic() + self._start_timeout
        application = await self._applications.get(caller, request.image)
        ports = pinned_ports(application.ports, request.pins)
        if request.location not in application.regions:
            raise NotFoundError("region", request.location)
        tag = await self._tags.choose(application, request.location, request.version)
        session_id = request.id or str(uuid.uuid4())
        return _Start(
            actor=caller.actor,
            spec=session_spec(application, tag, request, session_id, ports),
            node_pool=application.node_pool,
            wanted=Wanted(tag.image, application.reservation, ports),
            deadline=deadline,
        )

    async def _run(self, start: _Start) -> HostSession:
        await self._reserve(start)
        self._under_way[start.key] = start
        try:
            await self._reach("start.reserved")
            self._take_rate(start)
            session = await self._try_hosts(start)
        except Exception as error:
            _log.info("session %r of %r not started: %s", start.key[1], start.key[0], error)
            freeing = asyncio.create_task(
                self._free(start, str(error)), name=f"free {start.key!r}"
            )
            self._freeing.add(freeing)
            freeing.add_done_callback(self._freeing.discard)
            await asyncio.wait({freeing}, timeout=FREE_WAIT)
            raise
        start.outcome = session.internal_id
        self._settle(start)
        return session

    def _settle(self, start: _Start) -> None:
        del self._under_way[start.key]
        start.settled.set()

    async def _reserve(self, start: _Start) -> None:
        identity = start.spec.identity
        new = NewSession(
            account=identity.account,
            id=identity.session_id,
            application=identity.application,
            tag=identity.tag,
            location=identity.location,
            labels=identity.labels,
            external_id=identity.external_id,
            reservation=start.spec.reservation,
            created_ms=self._clock.now_ms(),
        )
        outcome = await self._sessions.reserve_session(new)
        if isinstance(outcome, AccountGone):
            raise UnauthorizedError
        if isinstance(outcome, IdTaken):
            raise ConflictError("the session id is in use")
        if isinstance(outcome, QuotaExceeded):
            raise QuotaExceededError(outcome.limit)

    def _take_rate(self, start: _Start) -> None:
        retry_after = self._rate.take(start.key[0], start.location, self._clock.monotonic())
        if retry_after is not None:
            raise start.no_capacity("too many sessions were started", retry_after)

    async def _free(self, start: _Start, why: str) -> None:
        """Free the id and the quota, however long the database is out of order."""
        while True:
            now_ms = self._clock.now_ms()
            try:
                await self._sessions.free(
                    *start.key, why, now_ms, attempt=start.attempt, attempted=start.attempted
                )
                break
            except StoreError as error:
                _log.error(
                    "cannot free session %r of %r yet: %s", start.key[1], start.key[0], error
                )
                await asyncio.sleep(FREE_RETRY)
        if start.attempt is not None:
            self._fleet.stop_session(start.attempt.agent, start.attempt.internal_id)
        self._settle(start)

    async def _try_hosts(self, start: _Start) -> HostSession:
        refused: frozenset[str] = frozenset()
        silent = 0
        while silent < MAX_SILENT:
            internal_id = str(uuid.uuid4())
            link = await self._next_host(start, internal_id, refused)
            try:
                return await self._attempt(start, link, internal_id)
            except AgentRefusedError as error:
                silent += self._judge(start, error)
            except AgentSilentError as error:
                _log.warning("agent %s: start unknown: %s", link.row.name, error)
                silent += 1
            finally:
                await self._end_attempt(start, link, internal_id)
            refused |= {link.row.name}
        raise start.no_capacity("the hosts do not answer")

    async def _next_host(
        self, start: _Start, internal_id: str, refused: frozenset[str]
    ) -> HostLink:
        place = (start.location, start.node_pool)
        while True:
            left = self._time_left(start)
            if start.stop_wanted:
                raise _stopped()
            if left < MIN_CALL:
                raise start.no_capacity("the time for a start is over")
            link = self._fleet.take_host(*place, start.wanted, internal_id, refused)
            if link is not None:
                return link
            if not self._fleet.may_free_up(*place, start.wanted, refused):
                raise start.no_capacity("no host has room")
            await self._fleet.wait_for_change(left)

    async def _attempt(self, start: _Start, link: HostLink, internal_id: str) -> HostSession:
        address = link.host.public_address if link.host is not None else ""
        start.attempt, start.refused = Attempt(internal_id, link.row.name, address), False
        now_ms, first_of = self._clock.now_ms(), None if start.attempted else start.actor
        if not await self._sessions.begin_attempt(
            *start.key, start.attempt, now_ms, first_of=first_of
        ):
            raise AgentRefusedError(AgentReason.DRAINING, "the agent was removed")
        start.attempted = True
        await self._reach("start.attempted")
        timeout = max(MIN_CALL, min(CALL_TIMEOUT, self._time_left(start)))
        spec = self._with_ticket(start.spec, link, internal_id)
        answer = await link.client.start_session(internal_id, spec, timeout)
        await self._reach("start.answered")
        session = link.answered(internal_id, answer)
        verdict = await self._reports.confirm(link.row.name, session, self._clock.now_ms())
        await self._reach("start.confirmed")
        start.attempt = None
        if verdict is Verdict.STOP:
            self._fleet.stop_session(link.row.name, internal_id)
        if session.state.ended:
            link.forget(session)
        self._fleet.wake()
        return session

    async def _end_attempt(self, start: _Start, link: HostLink, internal_id: str) -> None:
        """Take a failed attempt off the row first, and only then off the host's numbers.

        As long as it holds its start slot, what the host reports of it is left to us.
        """
        if link.holds_answer(internal_id) and start.attempt is None:
            return
        attempt = start.attempt
        try:
            if attempt is not None:
                now_ms = self._clock.now_ms()
                await self._sessions.end_attempt(
                    *start.key, attempt, now_ms, abandon=not start.refused
                )
                if not start.refused:
                    self._fleet.stop_session(attempt.agent, attempt.internal_id)
                start.attempt = None
        finally:
            self._fleet.give_back(link, internal_id)

    def _judge(self, start: _Start, error: AgentRefusedError) -> int:
        """Raise when no other host can help; else 1 when the attempt's end is unknown, or 0."""
        if error.agent_reason in REFUSED_BY_ADMISSION:
            start.refused = True
            return 0
        if error.agent_reason is AgentReason.IMAGE_CANNOT_RUN:
            raise ImageCannotRunError(error.text) from error
        if error.agent_reason is AgentReason.INVALID_ARGUMENT:
            raise InvalidRequestError((Violation("body", error.text),)) from error
        _log.warning("session %r: start failed: %s", start.key[1], error)
        return 1

    def _with_ticket(self, spec: SessionSpec, link: HostLink, internal_id: str) -> SessionSpec:
        ticket = self._ticket_key.ticket(link.row.name, internal_id, spec.identity)
        return replace(spec, identity=replace(spec.identity, ticket=ticket))

    def _time_left(self, start: _Start) -> float:
        return start.deadline - RESERVE - self._clock.monotonic()


def _stopped() -> ConflictError:
    return ConflictError("the session was stopped during its start")
