"""All sessions of a host and their tasks."""

import asyncio
import uuid
from collections.abc import Callable, Coroutine, Iterator
from dataclasses import replace
from functools import partial

from agent.domain.containers.engine import Container
from agent.domain.errors import (
    AgentError,
    CannotKillError,
    NoFreePortError,
    NotReconciledError,
    PortTakenError,
    SessionNotFoundError,
    SessionStoppedError,
    SpecConflictError,
)
from agent.domain.kept.pools import WarmPool
from agent.domain.kept.prepared import Prepared
from agent.domain.sessions.deadlines import deadline_by
from agent.domain.sessions.session import Session, checked_id
from agent.metrics.instruments import Start
from agent.sessions import cleanup, starting
from agent.sessions.drains import Drains
from agent.sessions.life import Life, trace_fields
from agent.sessions.lifecycle import Lifecycle
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.state.drain import DRAIN
from agent.state.tombstones import Tombstones
from tiltyard.contract import EndReason, SessionSpec
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS
from tiltyard.runtime.logging.events import get_logger, task_context
from tiltyard.runtime.tasks import TaskOwner, contained

log = get_logger(__name__)

LONGEST_SLEEP_SECONDS = 1.0
"""New deadlines are at least a minute away; a suspended machine wakes late."""

CLOSE_SECONDS = 5.0  # Shutdown timeout of the session tasks; their containers keep running


class SessionManager:
    """Starts, stops and finds the sessions of a host; callers only wait for a session's task."""

    def __init__(
        self, runtime: Runtime, reservations: Reservations, prepared: PreparedContainers
    ) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._prepared = prepared
        self._lives: dict[str, Life] = {}
        self._starting: list[Life] = []  # Those that were starting when the newest one was added
        self._tasks = TaskOwner[None]()
        self._discards = TaskOwner[None](AgentError)
        self.tombstones = Tombstones(runtime.records, runtime.clock)
        self.drains = Drains(reservations, lambda: self.lives, self.end)
        self.reconciled = False
        """True once the records were reconciled with the engine; until then starts are refused."""

    # -- for callers ---------------------------------------------------------------------------

    async def start(self, internal_id: str, spec: SessionSpec) -> Session:
        """Start a session, or join the start of this id, and return it once it runs."""
        life = self._find(internal_id) or await self._begin_new(internal_id, spec)
        if not life.session.is_started_by(spec):
            raise SpecConflictError(internal_id)
        await life.wait_started()
        return life.session

    def start_standby(self, pool: WarmPool) -> Life:
        """Begin the start of a standby; the caller takes its start slot."""
        internal_id = str(uuid.uuid4())
        with self._runtime.metrics.refusals(Start.STANDBY):
            spec = pool.spec_for(internal_id)
            return self._begin(
                Session(internal_id, spec, self._runtime.clock.time(), standby=pool.standby)
            )

    async def make_room(self, pool: WarmPool) -> None:
        """Let prepared containers give back the ports that a standby lacks."""
        if pool.spec is not None:
            await self._prepared.make_room(pool.spec)

    async def stop(self, internal_id: str, reason: EndReason, *, discard: bool = False) -> Session:
        """Stop a session and return it once it has ended; `discard` also removes all of it.

        Raises:
            SessionNotFoundError: The id is unknown; a tombstone now rejects a late start.
            CannotKillError: SIGKILL did not end its process.
        """
        life = self._find(internal_id)
        if life is not None and not life.started:
            self.tombstones.note(internal_id)  # before it is gone
        if life is not None and not life.session.state.ended:
            self.end(life, reason)
            await life.wait_for(lambda session: session.state.ended)
        if life is None or life.removed.is_set():
            await self.tombstones.bury(internal_id)
            raise SessionNotFoundError(internal_id)
        if life.unkillable:
            raise CannotKillError(internal_id)
        if discard:
            await asyncio.shield(self._discards.get(internal_id) or self._begin_discard(life))
        return life.session

    def life(self, internal_id: str) -> Life:
        """Return a session; raises SessionNotFoundError."""
        life = self._find(internal_id)
        if life is None:
            raise SessionNotFoundError(internal_id)
        return life

    def all(self) -> list[Session]:
        """All sessions by creation, including those that are starting."""
        return sorted(self.each(), key=lambda session: (session.create_time, session.internal_id))

    def each(self) -> Iterator[Session]:
        """All sessions, unordered."""
        return (life.session for life in self._lives.values() if not life.removed.is_set())

    def uses_image(self, image: str) -> bool:
        """True while a live session or a kept container uses the image."""
        return any(
            life.session.spec.image == image and not life.session.container_removed
            for life in self._lives.values()
        )

    def started(self) -> list[Session]:
        """All sessions whose start has succeeded, by their sequence."""
        return sorted(
            (life.session for life in self._lives.values() if life.started),
            key=lambda session: session.sequence,
        )

    def starting(self) -> tuple[str, ...]:
        """Internal ids of the sessions that are starting."""
        return tuple(life.session.internal_id for life in self._still_starting())

    # -- for the daemon ------------------------------------------------------------------------

    @property
    def lives(self) -> list[Life]:
        """All sessions, including failed starts that are being undone."""
        return list(self._lives.values())

    def remember(self, session: Session) -> None:
        """Add a session from an earlier run of the agent."""
        runtime = self._runtime
        session = session.with_changes(sequence=runtime.feed.stamp())
        life = Life(runtime, self._reservations, session)
        self._add(life)
        if not session.state.ended:
            life.arm()  # deadlines hold whether or not the engine answers
        if session.holds_reservation:
            same_boot = session.boot_id == runtime.clock.boot_id
            self._reservations.adopt(session if same_boot else replace(session, process=None))

    def resume(self, life: Life, container: Container | None) -> None:
        """Begin the task of a remembered session unless it has one; `container` as it is now."""
        if self._tasks.get(life.session.internal_id) is None:
            self._own(life, partial(self._lifecycle(life).run_adopted, container))

    def find(self, internal_id: str) -> Life | None:
        """A session by id, or None; includes failed starts that are being undone."""
        return self._lives.get(internal_id)

    async def keep_deadlines(self) -> None:
        """End sessions at their deadline or that of a drain, until cancelled."""
        clock = self._runtime.clock
        while True:
            soonest = clock.boottime() + LONGEST_SLEEP_SECONDS
            due = self._runtime.deadlines.next_due()
            await clock.sleep_until_boottime(soonest if due is None else min(due, soonest))
            self.end_due()

    def end_due(self) -> None:
        """End all sessions that are due now; those with an unexpected error are due again soon."""
        deadlines = self._runtime.deadlines
        for internal_id in deadlines.pop_due():
            with contained("cannot end a session: internal error", session=internal_id):
                self._end_due(internal_id)
                continue
            deadlines.arm(internal_id, deadline_by(self._runtime.clock, RETRY_LONGEST_SECONDS))

    def _end_due(self, internal_id: str) -> None:
        if internal_id == DRAIN:
            self.drains.end_all()
        elif life := self._lives.get(internal_id):
            log.info("lifetime is over", session=internal_id)
            self._runtime.metrics.lifetime_over(life.session, self._runtime.clock)
            self.end(life, EndReason.TTL)

    def end(self, life: Life, reason: EndReason) -> None:
        """Request a stop; before reconciliation, act on the record alone."""
        life.ask_stop(reason)
        if life.session.process is not None and not self.reconciled:
            self.resume(life, None)

    async def forget(self, internal_id: str) -> None:
        """Remove an ended session and its directory."""
        life = self._lives.get(internal_id)
        if life is None:
            return
        async with life.cleanup_lock:
            if not life.removed.is_set():
                del self._lives[internal_id]
                life.mark_removed()
                await self._runtime.records.delete(life.session)

    async def close(self) -> None:
        """Stop all session tasks; containers keep running."""
        owners = (self._tasks, self._discards, self.drains.tasks)
        try:
            async with asyncio.timeout(CLOSE_SECONDS):
                await asyncio.gather(*(owner.close() for owner in owners))
        except TimeoutError:
            for task in (task for owner in owners for task in owner):
                log.warning("task did not end in time", task=task.get_name())

    def _find(self, internal_id: str) -> Life | None:
        life = self._lives.get(checked_id(internal_id))
        return None if life is None or life.removed.is_set() else life

    def _add(self, life: Life) -> None:
        self._starting = [*self._still_starting(), life]
        self._lives[life.session.internal_id] = life

    def _still_starting(self) -> Iterator[Life]:
        return (life for life in self._starting if life.is_starting)

    async def _begin_new(self, internal_id: str, spec: SessionSpec) -> Life:
        """Begin a start; prepared containers give back the ports that it lacks."""
        with self._runtime.metrics.refusals(Start.COLD):
            try:
                return self._begin_session(internal_id, spec)
            except (NoFreePortError, PortTakenError):
                if not await self._prepared.make_room(spec):
                    raise
            return self._find(internal_id) or self._begin_session(internal_id, spec)

    def _begin_session(self, internal_id: str, spec: SessionSpec) -> Life:
        """Begin a start, in a prepared container if one of its shape waits."""
        if not self.reconciled:
            raise NotReconciledError
        if internal_id in self.tombstones:
            raise SessionStoppedError(internal_id)
        prepared = self._prepared.take(spec)
        try:
            life = self._begin(Session(internal_id, spec, self._runtime.clock.time()), prepared)
        except Exception:
            if prepared is not None:
                self._prepared.put_back(prepared)
            raise
        self._prepared.follow(life, prepared)
        return life

    def _begin(self, session: Session, prepared: Prepared | None = None) -> Life:
        starting.check_spec(self._runtime.settings, session.spec)
        session = self._reservations.take(session, prepared)
        life = Life(self._runtime, self._reservations, session)
        self._add(life)
        self._own(life, partial(self._lifecycle(life).run_new, prepared))
        self._runtime.feed.host_changed(can_wait=True)  # a hint, since only this host admits
        return life

    def _lifecycle(self, life: Life) -> Lifecycle:
        return Lifecycle(self._runtime, self._reservations, life, self._prepared)

    def _own(self, life: Life, run: Callable[[], Coroutine[None, None, None]]) -> None:
        internal_id = life.session.internal_id
        own = task_context("request", session=internal_id, **trace_fields(life.session))
        name = f"session-{internal_id}"
        self._tasks.start(self._drive(life, run), name, key=internal_id, context=own)

    async def _drive(self, life: Life, run: Callable[[], Coroutine[None, None, None]]) -> None:
        try:
            await run()
        finally:
            if life.removed.is_set():
                self._lives.pop(life.session.internal_id, None)

    def _begin_discard(self, life: Life) -> asyncio.Task[None]:
        internal_id = life.session.internal_id
        forget = partial(self.forget, internal_id)
        discard = cleanup.discard(self._runtime, self.tombstones, life, forget)
        return self._discards.start(discard, f"discard-{internal_id}", key=internal_id)
