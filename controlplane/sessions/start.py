"""POST /session: claims standbys, then tries hosts, one by one until one runs the session.

A start is a separate task: a client that hangs up ends the wait, not the start. This module owns
the row of a session during its start:

| the row                        | is committed                      | a crash leaves             |
|--------------------------------|-----------------------------------|----------------------------|
| none                           |                                   | nothing                    |
| running, names a standby       | before its host is called         | a claim that is repeated   |
| created, names no host         | when no host can take it at once, | nothing: its id is freed   |
|                                | and when an attempt has failed    | by the next process        |
| created, names an attempt      | before its host is called         | what the host reports      |
| confirmed                      | when the host has answered; of a  | the session                |
|                                | claim, soon after                 |                            |

A call has one of three outcomes (`attempt.py`). `Confirmed` ends the start. After `NothingStarted`
and `Unknown`, one commit replaces the row of a claim by the next one; an attempt is removed from
its row in a separate commit, since the start may then wait for a host. With `Unknown` that commit
also records the attempt as unanswered, so that its session is stopped (`unanswered.py`).

Each of these commits checks the row's stop mark. A failed start frees its row and what that names
(`_free`). A standby or a host's capacity is released only when no row names it: otherwise a report
of that host could end a session that continues on another.
"""

import asyncio
import uuid
from functools import partial

from controlplane.applications.applications import Applications
from controlplane.applications.tags import Tags
from controlplane.domain.contract import HostSession
from controlplane.domain.errors import (
    AgentRefusedError,
    NoCapacityCause,
    NoCapacityError,
    NotFoundError,
    StoppedDuringStartError,
    TiltyardError,
)
from controlplane.domain.start_failures import LACK_OF_ROOM
from controlplane.domain.start_rate import StartRate
from controlplane.domain.start_timing import Phase, StartKind, StartTiming
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.host.host import Host
from controlplane.fleet.queue import Ask, HostQueue
from controlplane.http.byte_room import kept_body
from controlplane.metrics.starts import StartMetrics
from controlplane.sessions.attempt import Attempts, Confirmed, NothingStarted, Outcome, Unknown
from controlplane.sessions.claim import Claims, HeldStandby, claim_of
from controlplane.sessions.start_request import Plan, StartRequest, pinned_ports
from controlplane.sessions.unanswered import Unanswered
from controlplane.sessions.under_way import Start, StartsUnderWay, Trial
from controlplane.storage.engine.store import Store
from controlplane.storage.tables import sessions
from controlplane.storage.tables.accounts import Caller
from controlplane.storage.tables.claims import FailedClaim, NewClaim, StandbyTakenError
from controlplane.storage.tables.session_rows import Attempt
from controlplane.storage.tables.sessions import NewSession
from tiltyard.contract import Identity, SessionSpec
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
MAX_UNANSWERED = 3  # Attempts of unknown outcome after which the start is given up
MAX_UNANSWERED_CLAIMS = 2  # Claims of unknown outcome after which the start continues cold
MAX_CLAIMS = 8  # Standbys tried before the start continues cold


class Starts:
    """Owns every start under way."""

    def __init__(
        self,
        *,
        applications: Applications,
        tags: Tags,
        store: Store,
        fleet: Fleet,
        queue: HostQueue,
        start_timeout: float,
        rate: StartRate,
        claims: Claims,
        clock: Clock,
        reach: Reach = no_failpoint,
        metrics: StartMetrics | None = None,
    ) -> None:
        self._applications = applications
        self._tags = tags
        self._store = store
        self._fleet = fleet
        self.queue = queue
        self.start_timeout = start_timeout
        self.rate = rate
        self._claims = claims
        self._clock = clock
        self._reach = reach
        self._metrics = metrics or StartMetrics()
        self._attempts = Attempts(fleet=fleet, clock=clock, reach=reach, metrics=self._metrics)
        self._unanswered = Unanswered(store, fleet, clock)
        self._tasks = TaskOwner[HostSession](TiltyardError)
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
            ImageCannotRunError: The engine refuses the image.
        """
        start = Start(
            actor=caller.actor,
            account=caller.account,
            request=request,
            deadline=self._clock.monotonic() + self.start_timeout,
            timing=StartTiming(self._clock.monotonic),
            id=request.id or "",
        )
        with self._metrics.refusals():
            self.under_way.add(start)  # before the first await: a DELETE finds it
        name = f"start {start.account}/{start.id!r}"
        session = await self._tasks.finish(self._whole(caller, start), name)
        if start.is_stopped:
            raise StoppedDuringStartError
        return session

    def call_off(self, start: Start, *, is_marked: bool = False) -> None:
        """Cancel a start before its next host. `is_marked`: the row has the stop mark."""
        start.stop_wanted = True
        start.is_stopped |= is_marked
        if start.ask is not None:
            self.queue.call_off(start.ask)

    async def close(self) -> None:
        """Wait for the starts under way, then cancel the freeing of rows."""
        await self._tasks.wait()
        await self._freeing.close()

    async def _whole(self, caller: Caller, start: Start) -> HostSession:
        with kept_body():
            try:
                with self._metrics.refusals(), start.timing.phase(Phase.PREPARE):
                    plan = await self._prepare(caller, start)
                with self._metrics.counted(start.timing):
                    return await self._run(start, plan)
            finally:
                if not start.has_row:
                    self.under_way.end(start)

    async def _prepare(self, caller: Caller, start: Start) -> Plan:
        request = start.request
        application, tags = await self._applications.startable(caller, request.image)
        ports = pinned_ports(application.ports, request.pins)
        if request.location not in application.regions:
            raise NotFoundError("region", request.location)
        tag, no_tag = await self._tags.choose(
            application,
            tags,
            request.location,
            request.version,
            is_served=lambda: self._claims.may_serve(application, request),
            deadline=start.deadline - RESERVE,
        )
        return Plan(request, application, tag, ports, no_tag)

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
            freeing = self._freeing.start(self._free(start, str(error)), f"free {start.id!r}")
            await asyncio.wait({freeing}, timeout=FREE_WAIT)
            raise
        start.is_stopped |= confirmed.is_to_stop
        start.session = confirmed.session
        self.under_way.end(start)
        return confirmed.session

    async def _reserve(
        self,
        start: Start,
        plan: Plan,
        identity: Identity,
        *,
        claim: NewClaim | None = None,
        first: Trial | None = None,
    ) -> None:
        """Commit a row, with its `first` attempt; it replaces that of a failed claim."""
        before = start.trial
        failed = None
        if before is not None:
            failed = FailedClaim(start.id, before.attempt, before.is_unanswered)
        now = self._clock.time()
        reservation = plan.application.reservation
        new = NewSession(identity, reservation, now, claim, start.request.ttl)
        is_recorded = start.is_recorded and start.id == identity.session_id
        attempt = None if first is None else first.attempt
        first_of = None if is_recorded else start.actor
        is_begun = await self._store.run(
            sessions.reserve, new, failed=failed, first=attempt, first_of=first_of
        )
        if first is not None and not is_begun:
            first.release()
            first = None
        start.is_recorded = is_recorded or claim is not None or first is not None
        start.trial = first
        self.under_way.note_row(start, identity.session_id)
        if before is not None:
            self._unanswered.drop(before)

    async def _free(self, start: Start, why: str) -> None:
        """Free the id, the quota and what the row names."""
        await self._unanswered.free(start, why)
        self.under_way.end(start)

    # ---- warm

    async def _claim(self, start: Start, plan: Plan) -> Confirmed | None:
        """Claim a standby; None if the start must continue cold."""
        unanswered = 0
        with start.timing.phase(Phase.CLAIM):
            for _ in range(MAX_CLAIMS):
                if start.stop_wanted:
                    raise StoppedDuringStartError
                has_time = self._time_left(start) >= MIN_CALL
                held = self._claims.take(plan) if has_time else None
                if held is None:
                    break
                outcome = await self._claim_held(start, plan, held)
                if isinstance(outcome, Confirmed):
                    start.timing.kind = StartKind.WARM
                    return outcome
                unanswered += isinstance(outcome, Unknown)
                if unanswered == MAX_UNANSWERED_CLAIMS:
                    break
        return None

    async def _claim_held(self, start: Start, plan: Plan, held: HeldStandby) -> Outcome | None:
        """Claim one standby; None if not available. The row still names a failed one."""
        new = claim_of(plan, held, start.actor)
        try:
            await self._reach("claim.taken")
            await self._reserve(start, plan, new.claim.identity, claim=new)
        except StandbyTakenError:
            self._claims.keep(held)
            return None
        except BaseException:
            self._claims.release(held)
            raise
        keep = partial(self._claims.keep, held)
        start.trial = trial = Trial(held.host, new.attempt, keep, is_unanswered=True)
        await self._reach("claim.attempted")
        timeout = self._timeout(start, CLAIM_SHARE)
        outcome = await self._attempts.claim(start, held.host, new.claim, timeout)
        if isinstance(outcome, Confirmed):
            start.trial = None
            self._claims.keep(held)
            return outcome
        trial.is_unanswered = isinstance(outcome, Unknown)
        if isinstance(outcome, NothingStarted):
            trial.release = partial(self._claims.release, held, outcome)
        self._claims.set_aside(held, outcome)
        return outcome

    # ---- cold

    async def _start_cold(self, start: Start, plan: Plan, retry_after: int | None) -> Confirmed:
        """Start a session on a host, unless the start rate is exceeded."""
        if start.stop_wanted:
            raise StoppedDuringStartError
        if plan.no_tag is not None and retry_after is None:
            raise plan.no_tag
        spec = plan.spec(start.request.id or str(uuid.uuid4()))
        first = None if retry_after is not None else self._trial_at_once(start, plan)
        try:
            with start.timing.phase(Phase.RESERVE):
                await self._reserve(start, plan, spec.identity, first=first)
        except BaseException:
            if first is not None:
                first.release()
            raise
        await self._reach("start.reserved")
        if retry_after is not None:
            why = "too many sessions were started"
            raise start.no_capacity(NoCapacityCause.RATE, why, retry_after)
        if start.stop_wanted:
            raise StoppedDuringStartError
        return await self._try_hosts(start, plan, spec)

    async def _try_hosts(self, start: Start, plan: Plan, spec: SessionSpec) -> Confirmed:
        tried: frozenset[str] = frozenset()
        unanswered = 0
        failure = None
        try:
            while unanswered < MAX_UNANSWERED:
                trial = start.trial or await self._next_trial(start, plan, tried)
                outcome = await self._try_host(start, trial, spec)
                if isinstance(outcome, Confirmed):
                    return outcome
                unanswered += isinstance(outcome, Unknown)
                error = outcome.error
                if isinstance(error, AgentRefusedError) and error.agent_reason not in LACK_OF_ROOM:
                    failure = error
                tried |= {trial.host.name}
            raise start.no_capacity(NoCapacityCause.HOSTS_UNRESPONSIVE, "the hosts do not answer")
        except NoCapacityError as error:
            if failure is None:
                raise
            why = f"the hosts failed, the last one with {failure}"
            raise start.no_capacity(NoCapacityCause.HOSTS_FAILED, why) from error

    def _trial_at_once(self, start: Start, plan: Plan) -> Trial | None:
        """Choose a host for the first attempt; None if none can take it now."""
        ask = _ask(start, plan, frozenset())
        with start.timing.phase(Phase.QUEUE):
            host = self._fleet.take_host(
                *ask.place, ask.wanted, internal_id=ask.internal_id, refused=ask.tried
            )
        return None if host is None else self._trial(host, ask.internal_id)

    async def _next_trial(self, start: Start, plan: Plan, tried: frozenset[str]) -> Trial:
        if start.stop_wanted:
            raise StoppedDuringStartError
        left = self._time_left(start) - MIN_CALL
        if left < 0:
            why = "the start timed out"
            raise start.no_capacity(NoCapacityCause.OUT_OF_TIME, why)
        start.ask = ask = _ask(start, plan, tried)
        with start.timing.phase(Phase.QUEUE):
            host = await self.queue.take_host(ask, left)
        if host is None:
            raise StoppedDuringStartError
        return self._trial(host, ask.internal_id)

    def _trial(self, host: Host, internal_id: str) -> Trial:
        address = host.report.public_address if host.report is not None else ""
        give_back = partial(self._fleet.give_back, host, internal_id)
        return Trial(host, Attempt(internal_id, host.name, address), give_back)

    async def _try_host(self, start: Start, trial: Trial, spec: SessionSpec) -> Outcome:
        """Make one attempt; a failed one is removed from the row."""
        outcome: Outcome | None = None
        if start.trial is not trial:
            outcome = await self._begin(start, trial)
        if outcome is None:
            trial.is_unanswered = True
            await self._reach("start.attempted")
            timeout = self._timeout(start, CALL_SHARE)
            internal_id = trial.attempt.internal_id
            outcome = await self._attempts.start(
                start, trial.host, internal_id, spec, timeout=timeout
            )
        if not isinstance(outcome, Confirmed):
            trial.is_unanswered = isinstance(outcome, Unknown)
            await self._unanswered.end_attempt(start, trial)
        start.trial = None
        return outcome

    async def _begin(self, start: Start, trial: Trial) -> NothingStarted | None:
        """Write an attempt to the row; return why its host cannot be called."""
        start.trial = trial
        first_of = None if start.is_recorded else start.actor
        try:
            with start.timing.phase(Phase.COMMIT):
                await self._store.run(
                    sessions.begin_attempt,
                    start.account,
                    start.id,
                    trial.attempt,
                    now=self._clock.time(),
                    first_of=first_of,
                )
        except AgentRefusedError as error:
            return NothingStarted(error)
        start.is_recorded = True
        return None

    def _timeout(self, start: Start, share: float) -> float:
        return max(MIN_CALL, min(share * self.start_timeout, self._time_left(start)))

    def _time_left(self, start: Start) -> float:
        return start.deadline - RESERVE - self._clock.monotonic()


def _ask(start: Start, plan: Plan, tried: frozenset[str]) -> Ask:
    place = start.request.location, plan.application.node_pool
    return Ask(place, start.account, plan.wanted, str(uuid.uuid4()), tried)
