"""The warm pools of a host, kept full also without a control plane.

`domain/kept/standby_plan.py` plans which standbys to start and stop; this module executes the
plan. A standby starts like any session, but only while `StartSlots.has_spare`. After a standby has
started, the next one of the plan starts without another pass.
"""

import asyncio
from collections import Counter, deque
from collections.abc import Collection

from agent.changes.looking import look_at_changes
from agent.domain.errors import (
    AgentError,
    DrainingError,
    NoCapacityError,
    NoFreePortError,
    NotReconciledError,
    PortTakenError,
    SessionNotFoundError,
    StaleRevisionError,
    StandbyNotClaimableError,
)
from agent.domain.kept.pools import WarmPool, taken
from agent.domain.kept.retry_delays import RetryDelays
from agent.domain.kept.standby_plan import Plan, plan
from agent.domain.sessions.session import Session, checked_id
from agent.metrics.instruments import Start
from agent.sessions import claims
from agent.sessions.life import ClaimRequest, Life
from agent.sessions.manager import SessionManager
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.sessions.starting import check_spec
from tiltyard.contract import EndReason
from tiltyard.runtime.back_off import BackOff
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import TaskOwner, contained

log = get_logger(__name__)

REMOVED_KEPT = 50  # Removed pools that are remembered, to reject late orders


class WarmPools:
    """Keeps the ordered number of standbys, and executes claims."""

    def __init__(
        self, runtime: Runtime, reservations: Reservations, sessions: SessionManager
    ) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._sessions = sessions
        self._pools: dict[str, WarmPool] = {}  # Includes the newest REMOVED_KEPT removed pools
        self._ordering = asyncio.Lock()
        self._tasks = TaskOwner[None](AgentError)
        self._standbys: dict[str, Life] = {}  # Standbys not in doubt, until claimed or removed
        self._due = deque[str]()
        """The pools of the standbys that the last pass planned and that are not started yet."""
        self._found = False  # True once `_standbys` includes those of earlier runs of the agent
        self._ends = TaskOwner[None]()
        self._failed: dict[str, str] = {}
        """The newest failed standby of each pool, kept for its log."""
        self._retry_delays = RetryDelays()
        self._refusals: dict[str, str] = {}
        self.warnings: tuple[str, ...] = ()
        """Pools that are not full, and why, as of the last pass."""

    # -- for callers ---------------------------------------------------------------------------

    async def set(self, order: WarmPool) -> None:
        """Set the size and spec of a pool, durably."""
        checked_id(order.pool, "pool_id")
        if order.spec is not None:
            check_spec(self._runtime.settings, order.spec)
        # It completes also if the caller disconnects.
        await self._tasks.finish(self._set(order), f"warm-pool-{order.pool}")

    def standby(self, internal_id: str) -> Session | None:
        """Return a standby; None if it is unknown, or a session."""
        try:
            session = self._sessions.life(internal_id).session
        except SessionNotFoundError:
            return None
        return session if session.is_standby else None

    async def claim(self, internal_id: str, request: ClaimRequest) -> Session:
        """Claim a standby, and return the session once its game was notified."""
        reconciled = self._sessions.reconciled
        with self._runtime.metrics.starting(Start.WARM, self._runtime.clock):
            try:
                life = self._sessions.life(internal_id)
            except SessionNotFoundError:
                if not reconciled:
                    raise NotReconciledError from None
                raise StandbyNotClaimableError("it is unknown") from None
            if life.session.standby is None:
                raise StandbyNotClaimableError("it is not a standby")
            if life.session.is_standby and not reconciled:
                raise NotReconciledError
            draining = self._reservations.drain.now.draining
            if life.session.is_standby and draining and not request.again:
                raise DrainingError
            await claims.claim(life, request)
            return life.session

    @property
    def pools(self) -> tuple[WarmPool, ...]:
        """Ordered pools, by id."""
        return tuple(self._pools[each] for each in sorted(self._pools))

    def uses_image(self, image: str) -> bool:
        """True for the image of a pool."""
        return any(pool.spec is not None and pool.spec.image == image for pool in self.pools)

    # -- for the daemon ------------------------------------------------------------------------

    async def load(self) -> None:
        """Load the pools, before anything is served."""
        self._pools = await self._runtime.records.load_pools()

    async def run(self) -> None:
        """Keep the pools full, until cancelled."""
        await look_at_changes(
            self.look,
            self._runtime.feed,
            self._runtime.clock,
            next_due=lambda: self._retry_delays.next_end(self._runtime.clock.monotonic()),
            name="warm-pools",
        )

    def look(self) -> None:
        """Run one pass: start and stop standbys; the next pass sees the results."""
        if not self._sessions.reconciled:
            return
        if not self._found:
            found = self._sessions.lives
            self._standbys = {
                life.session.internal_id: life for life in found if life.session.is_given_back
            }
            self._found = True
        self._update_standbys()
        wanted = self._plan(cramped=())
        self._stop(wanted)
        self._due = deque(wanted.start)
        cramped = self._start()
        if cramped:
            self._stop(self._plan(cramped))
        warnings = self._warnings()
        if warnings != self.warnings:
            self.warnings = warnings
            self._runtime.feed.host_changed(can_wait=True)

    async def close(self) -> None:
        """Cancel work in progress; standbys keep running."""
        await asyncio.gather(self._ends.close(), self._tasks.close())

    async def _set(self, order: WarmPool) -> None:
        async with self._ordering:
            before = self._pools.get(order.pool)
            if before is not None and order.revision < before.revision:
                raise StaleRevisionError(order.revision, before.revision)
            if before is not None and order.revision == before.revision:
                return
            after = taken(order, before)
            await self._runtime.records.save_pool(after)
            self._pools[order.pool] = after
            self._due.clear()  # planned for the pool as it was
            removed = [each for each in self._pools.values() if not each.size]
            removed.sort(key=lambda each: each.revision)
            for each in removed[:-REMOVED_KEPT]:
                del self._pools[each.pool]
                await self._runtime.records.remove_pool(each.pool)
        if before is None or before.spec_revision != after.spec_revision:
            self._retry_delays.forget(order.pool)  # the new spec may work
            self._refusals.pop(order.pool, None)
        log.info("warm pool ordered", pool=order.pool, count=order.size)
        self._runtime.feed.host_changed()

    def _live(self) -> list[Life]:
        """Standbys that can be claimed, now or once they are ready."""
        return [
            life
            for life in self._standbys.values()
            if life.session.is_given_back
            and not life.session.state.ended
            and not life.stop_asked.is_set()
            and not life.removed.is_set()
            and life.pending_claim is None
        ]

    def _plan(self, cramped: Collection[str]) -> Plan:
        now = self._runtime.clock.monotonic()
        return plan(
            self.pools,
            [life.session for life in self._live()],
            leaving={
                _pool_of(life)
                for life in self._standbys.values()
                if life.stop_asked.is_set() and not life.session.state.ended
            },
            held_back=self._retry_delays.held_back(now),
            cramped=cramped,
            draining=self._reservations.drain.now.draining,
        )

    def _update_standbys(self) -> None:
        """Update the standbys by the changes since the last pass."""
        for internal_id, life in list(self._standbys.items()):
            with contained("cannot update a standby: internal error", session=internal_id):
                self._update(internal_id, life)

    def _update(self, internal_id: str, life: Life) -> None:
        if life.removed.is_set():
            if life.start_error is not None and not life.stop_asked.is_set():
                self._note_failure(life, str(life.start_error))
            del self._standbys[internal_id]
        elif not life.session.is_standby:
            del self._standbys[internal_id]
        elif life.session.state.ended and self._ends.get(internal_id) is None:
            self._handle_end(life)

    def _handle_end(self, life: Life) -> None:
        """Remove an ended standby, unless it is the newest failed one of its pool."""
        session = life.session
        pool = _pool_of(life)
        kept = self._failed.get(pool)
        if session.internal_id != kept and session.stop_reason is None:
            how = session.detail or f"code {session.exit_code}"
            self._note_failure(life, f"it ended by itself: {session.end_reason}, {how}")
            self._failed[pool] = session.internal_id
            life = self._standbys.get(kept or "", life)
        asked = self._pools.get(pool)
        is_kept = life.session.internal_id == self._failed.get(pool)
        if not (is_kept and asked is not None and asked.size):
            self._discard(life, EndReason.STOPPED)

    def _note_failure(self, life: Life, cause: str) -> None:
        pool = _pool_of(life)
        self._retry_delays.note(pool, cause, self._runtime.clock.monotonic())
        log.warning("standby failed", pool=pool, session=life.session.internal_id, error=cause)

    def _start(self) -> Collection[str]:
        """Start while slots are spare; returns the pools whose next standby does not fit."""
        slots = self._reservations.start_slots
        busy: set[str] = set()  # Accounts without a spare slot
        refused: set[str] = set()
        cramped: list[str] = []
        due = self._due
        self._due = deque()
        for pool in due:
            account = self._pools[pool].account
            if account not in busy and not slots.has_spare(account):
                busy.add(account)
            if account in busy:
                self._due.append(pool)
                continue
            if pool in refused:
                continue
            try:
                life = self._sessions.start_standby(self._pools[pool])
            except AgentError as error:
                refused.add(pool)
                self._refusals[pool] = str(error)
                if isinstance(error, NoCapacityError | NoFreePortError):
                    cramped.append(pool)
                if isinstance(error, NoFreePortError | PortTakenError):  # a later pass has them
                    room = self._sessions.make_room(self._pools[pool])
                    self._tasks.start(room, f"room-{pool}", key=pool)
            except Exception:
                log.exception("cannot start a standby: internal error", pool=pool)
                refused.add(pool)
                self._refusals[pool] = str(AgentError())
            else:
                slots.take(account)
                self._standbys[life.session.internal_id] = life
                self._refusals.pop(pool, None)
                following = self._start_following(life)
                self._tasks.start(following, f"following-{life.session.internal_id}")
        return cramped

    async def _start_following(self, life: Life) -> None:
        """Continue the plan once a standby has started; only a pass does after a failure."""
        try:
            await life.wait_started()
        except AgentError:
            self._due.clear()
        else:
            self._start()

    def _stop(self, wanted: Plan) -> None:
        draining = self._reservations.drain.now.draining
        for internal_id in wanted.stop:
            reason = EndReason.DRAIN if draining else EndReason.STOPPED
            self._discard(self._standbys[internal_id], reason)

    def _discard(self, life: Life, reason: EndReason) -> None:
        """Stop a standby now and discard it in the background."""
        internal_id = life.session.internal_id
        if self._ends.get(internal_id) is not None:
            return
        if not life.session.state.ended:
            life.ask_stop(reason)
        end = self._end(internal_id, reason)
        own = task_context(session=internal_id)
        self._ends.start(end, f"end-{internal_id}", key=internal_id, context=own)

    async def _end(self, internal_id: str, reason: EndReason) -> None:
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                await self._sessions.stop(internal_id, reason, discard=True)
            except SessionNotFoundError:
                return
            except AgentError as error:
                log.warning("cannot remove a standby yet", session=internal_id, error=str(error))
            except Exception:
                log.exception("cannot remove a standby: internal error", session=internal_id)
            else:
                return
            await back_off.wait()

    def _warnings(self) -> tuple[str, ...]:
        failed = self._retry_delays.causes(self._runtime.clock.monotonic())
        causes = {**failed, **self._refusals}
        if not causes:
            return ()
        ready = Counter(
            _pool_of(life) for life in self._live() if life.session.ready_time is not None
        )
        return tuple(
            f"warm pool {each.pool}: {ready[each.pool]} of {each.size} ready: {causes[each.pool]}"
            for each in self.pools
            if each.pool in causes and ready[each.pool] < each.size
        )


def _pool_of(life: Life) -> str:
    standby = life.session.standby
    return standby.pool if standby is not None else ""
