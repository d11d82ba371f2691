"""POST /session: claims standbys, then tries hosts, one by one until one runs the session.

A start is a separate task: a client that hangs up ends the wait, not the start. The states of its
row are in `start_row.py`.

A call has one of three outcomes (`hold.py`). `Confirmed` ends the start. After `NothingStarted`
and `Unknown`, the next standby or host is tried. A failed start frees its id and quota.
"""

import asyncio
import uuid

from controlplane.domain.access.callers import Caller
from controlplane.domain.access.start_rate import StartRate
from controlplane.domain.errors import (
    AgentRefusedError,
    NoCapacityCause,
    NoCapacityError,
    StoppedDuringStartError,
)
from controlplane.domain.hosts.contract import HostSession
from controlplane.domain.placement.start_failures import LACK_OF_ROOM
from controlplane.domain.sessions.claims import StandbyTakenError
from controlplane.domain.sessions.start_timing import Phase, StartKind, StartTiming
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.queue import HostQueue
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.attempt import Attempts
from controlplane.sessions.capacity import Capacity, HeldCapacity
from controlplane.sessions.claim import Claims, HeldStandby, claim_of
from controlplane.sessions.hold import Confirmed, Hold, NothingStarted, Outcome, Unknown
from controlplane.sessions.plans import Plans
from controlplane.sessions.start_request import Plan, StartRequest
from controlplane.sessions.start_row import StartRow, shown_cause
from controlplane.sessions.under_way import Start, StartsUnderWay
from controlplane.storage.engine.store import Store
from tiltyard.contract import SessionSpec
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.failpoints import Reach, no_failpoint
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

NOT_STARTED = "not started"  # The log event of a failed start
RESERVE = 1.0  # Seconds of `start_timeout` kept for the commit and response after the last call
MIN_CALL = 0.1  # Seconds; a call with less time left would only time out
FREE_WAIT = 1.0  # Seconds that a caller waits for its id to be freed
CALL_SHARE = 0.5  # Of `start_timeout`, at most for one attempt: leaves time for a second host
CLAIM_SHARE = 0.25  # Of `start_timeout`, at most for one claim: leaves time for a cold start
MAX_UNANSWERED = 3  # Unanswered attempts after which the start is given up
MAX_UNANSWERED_CLAIMS = 2  # Unanswered claims after which the start continues cold
MAX_CLAIMS = 8  # Standbys tried before the start continues cold


class Starts:
    """Owns every start under way."""

    def __init__(
        self,
        *,
        plans: Plans,
        store: Store,
        fleet: Fleet,
        attempts: Attempts,
        queue: HostQueue,
        start_timeout: float,
        rate: StartRate,
        claims: Claims,
        clock: Clock,
        reach: Reach = no_failpoint,
        metrics: StartMetrics | None = None,
    ) -> None:
        self._plans = plans
        self._store = store
        self._fleet = fleet
        self._capacity = Capacity(fleet, queue)
        self.queue = queue
        self.start_timeout = start_timeout
        self.rate = rate
        self._claims = claims
        self._clock = clock
        self._reach = reach
        self._metrics = metrics or StartMetrics()
        self._attempts = attempts
        self._freeing = TaskOwner[None]()
        self.under_way = StartsUnderWay()

    async def start(self, caller: Caller, request: StartRequest) -> HostSession:
        """Start a session and return it as its host answered.

        Raises:
            UnauthorizedError: The account was removed meanwhile.
            NotFoundError: Application, region or tag.
            HostsNotReportedError: Only hosts that have not reported yet may have the tag or room.
            InvalidRequestError: A pin or an environment name is invalid.
            ConflictError: The id is taken, or the session was stopped during its start.
            QuotaExceededError: The account's quota is exhausted.
            NoCapacityError: No host can take it now, or the start rate is exceeded.
            HostsUnresponsiveError: Hosts that could take it do not answer.
            ImageCannotRunError: The engine refuses the image.
        """
        row = StartRow(
            store=self._store,
            clock=self._clock,
            actor=caller.actor,
            account=caller.account,
            session_id=request.id or "",
        )
        start = Start(
            request=request,
            deadline=self._clock.monotonic() + self.start_timeout,
            timing=StartTiming(self._clock.monotonic),
            row=row,
        )
        with self._metrics.refusals():
            self.under_way.add(start)  # before the first await: a DELETE finds it
        session = await self._whole(caller, start)
        if start.is_marked:
            raise StoppedDuringStartError
        return session

    def call_off(self, start: Start, *, is_marked: bool = False) -> None:
        """Cancel a start before its next host. `is_marked`: the row has the stop mark."""
        if is_marked:
            start.mark()
        self._capacity.call_off_wait(start)

    async def close(self) -> None:
        """Cancel the freeing of rows."""
        await self._freeing.close()

    async def _whole(self, caller: Caller, start: Start) -> HostSession:
        try:
            with self._metrics.refusals(), start.timing.phase(Phase.PREPARE):
                deadline = start.deadline - RESERVE
                plan = await self._plans.prepare(caller, start.request, deadline)
            with self._metrics.counted(start.timing):
                return await self._run(start, plan)
        finally:
            if not start.has_row:
                self.under_way.end(start)

    async def _run(self, start: Start, plan: Plan) -> HostSession:
        """Start a session. A failure before its row does not count in the start rate."""
        now = self._clock.monotonic()
        place = (start.account, start.request.location)
        retry_after = self.rate.take(*place, now)
        try:
            confirmed = None
            if retry_after is None:
                confirmed = await self._claim(start, plan)
            if confirmed is None:
                confirmed = await self._start_cold(start, plan, retry_after)
        except Exception as error:
            if not start.has_row:
                if retry_after is None:
                    self.rate.give_back(*place)
                raise
            log.info(NOT_STARTED, account=start.account, id=start.id, error=str(error))
            freeing = self._freeing.start(
                self._free(start, shown_cause(error)), f"free {start.id!r}"
            )
            await asyncio.wait({freeing}, timeout=FREE_WAIT)
            raise
        if confirmed.is_to_stop:
            start.mark()
        start.session = confirmed.session
        self.under_way.end(start)
        return confirmed.session

    async def _free(self, start: Start, why: str) -> None:
        await start.row.free(why)
        self.under_way.end(start)

    # ---- warm

    async def _claim(self, start: Start, plan: Plan) -> Confirmed | None:
        """Claim a standby; None if the start must continue cold."""
        unanswered = 0
        with start.timing.phase(Phase.CLAIM):
            for _ in range(MAX_CLAIMS):
                start.check()
                has_time = self._time_left(start) >= MIN_CALL
                held = self._claims.reserve_standby(plan) if has_time else None
                if held is None:
                    break
                outcome = await self._claim_held(start, plan, held)
                if isinstance(outcome, Confirmed):
                    start.timing.kind = StartKind.WARM
                    return outcome
                if isinstance(outcome, Unknown):
                    unanswered += 1
                    start.failure = outcome.error
                if unanswered == MAX_UNANSWERED_CLAIMS:
                    break
        return None

    async def _claim_held(self, start: Start, plan: Plan, held: HeldStandby) -> Outcome | None:
        """Claim one standby; None if not available. The row still names a failed one."""
        claim = claim_of(plan, held)
        try:
            await self._reach("claim.taken")
            await start.row.claim(claim, held)
        except StandbyTakenError:
            held.end()
            return None
        except BaseException:
            held.release()
            raise
        self.under_way.note_row(start)
        timeout = self._timeout(start, CLAIM_SHARE)
        outcome = await self._attempts.call_claim(
            held, claim, timing=start.timing, timeout=timeout
        )
        if isinstance(outcome, Confirmed):
            start.row.confirm()
        return outcome

    # ---- cold

    async def _start_cold(self, start: Start, plan: Plan, retry_after: int | None) -> Confirmed:
        """Start a session on a host, unless the start rate is exceeded."""
        start.check()
        if plan.no_tag is not None and retry_after is None:
            raise plan.no_tag
        spec = plan.spec(start.request.id or str(uuid.uuid4()))
        first = None
        if retry_after is None:
            first = self._capacity.reserve_host(start, plan)
        try:
            with start.timing.phase(Phase.RESERVE):
                await start.row.reserve(spec, first)
        except BaseException:
            if first is not None:
                first.release()
            raise
        self.under_way.note_row(start)
        await self._reach("start.reserved")
        if retry_after is not None:
            why = "too many sessions were started"
            raise start.no_capacity(NoCapacityCause.RATE, why, retry_after)
        start.check()
        return await self._try_hosts(start, plan, spec)

    async def _try_hosts(self, start: Start, plan: Plan, spec: SessionSpec) -> Confirmed:
        tried: frozenset[str] = frozenset()
        unanswered = 0
        try:
            while unanswered < MAX_UNANSWERED:
                hold = start.row.named or await self._wait_for_host(start, plan, tried)
                outcome = await self._try_host(start, hold, spec)
                if isinstance(outcome, Confirmed):
                    return outcome
                unanswered += isinstance(outcome, Unknown)
                if not _lacks_room(outcome):
                    start.failure = outcome.error
                tried |= {hold.host.name}
        except NoCapacityError as error:
            if start.failure is None:
                raise
            raise start.failed() from error
        raise start.failed()

    async def _wait_for_host(
        self, start: Start, plan: Plan, tried: frozenset[str]
    ) -> HeldCapacity:
        start.check()
        left = self._time_left(start) - MIN_CALL
        if left < 0:
            raise start.no_capacity(NoCapacityCause.OUT_OF_TIME, "the start timed out")
        return await self._capacity.wait_for_host(start, plan, tried, left)

    async def _try_host(self, start: Start, hold: Hold, spec: SessionSpec) -> Outcome:
        """Make one attempt; a failed one is removed from the row."""
        row = start.row
        if row.named is not hold:
            try:
                with start.timing.phase(Phase.COMMIT):
                    await row.name(hold)
            except AgentRefusedError as error:
                return NothingStarted(error)
        timeout = self._timeout(start, CALL_SHARE)
        outcome = await self._attempts.call_start(hold, spec, timing=start.timing, timeout=timeout)
        if isinstance(outcome, Confirmed):
            row.confirm()
        else:
            await row.clear()
        return outcome

    def _timeout(self, start: Start, share: float) -> float:
        return max(MIN_CALL, min(share * self.start_timeout, self._time_left(start)))

    def _time_left(self, start: Start) -> float:
        return start.deadline - RESERVE - self._clock.monotonic()


def _lacks_room(outcome: NothingStarted | Unknown) -> bool:
    error = outcome.error
    return isinstance(error, AgentRefusedError) and error.agent_reason in LACK_OF_ROOM
