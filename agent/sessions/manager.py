"""All sessions of a host, and the owner of every session's task."""

import asyncio
import contextlib
import uuid
from collections.abc import Coroutine, Iterator, Mapping
from dataclasses import replace

from agent.domain.engine import LABEL_SESSION, Container, ContainerStatus
from agent.domain.errors import (
    AgentError,
    CannotKill,
    DiskFull,
    NotReconciled,
    SessionNotFound,
    SessionStopped,
    SpecConflict,
)
from agent.domain.internal_id import checked_id
from agent.domain.pools import WarmPool
from agent.domain.session import EndReason, Session, SessionSpec, Standby
from agent.metrics.instruments import Start
from agent.sessions import cleanup, starting
from agent.sessions.lifecycle import Lifecycle
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.state.drain import DRAIN, DrainOrder
from agent.state.record import decode_label
from agent.state.tombstones import Tombstones
from agent.state.versioned_json import NewerFormat
from tiltyard.runtime.logging.context import task_context
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import TaskOwner

log = get_logger(__name__)

CLOSE_SECONDS = 5.0
"""How long session tasks may take to let go; containers outlive the agent, so they need little."""


def _holds(session: Session) -> bool:
    """True while a session has its ports and reservation; a dead one may still have a process."""
    return not session.state.ended or session.process is not None


class SessionManager:
    """Starts, stops and knows the sessions of a host.

    An RPC never owns work: it starts or joins a session's task here, and waits.
    """

    def __init__(self, runtime: Runtime, reservations: Reservations) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._lives: dict[str, Lifecycle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._discards: dict[str, asyncio.Task[None]] = {}
        self._tombstones = Tombstones(runtime.records, runtime.clock)
        self._damaged: list[str] = []
        self._drains = TaskOwner[None](AgentError)
        self._drain_lock = asyncio.Lock()
        self.reconciled = False
        """True once the records have been compared with the engine; starts wait for it."""

    # -- for callers ---------------------------------------------------------------------------

    async def start(self, internal_id: str, spec: SessionSpec) -> Session:
        """Start a session, or join the start of this id, and return it once it runs.

        Raises:
            AgentError: What StartSession of agent.proto names.
        """
        life = self._find(internal_id)
        if life is None:
            with self._runtime.metrics.refusals(Start.COLD):
                if not self.reconciled:
                    raise NotReconciled
                if internal_id in self._tombstones:
                    raise SessionStopped(internal_id)
                life = self._begin(internal_id, spec)
        elif life.session.spec != spec:
            raise SpecConflict(internal_id)
        await life.settled_start()
        return life.session

    def start_standby(self, pool: WarmPool) -> Lifecycle:
        """Begin the start of a standby in a start slot that is held for it, and return its life.

        Raises:
            AgentError: What admission refuses.
        """
        internal_id = str(uuid.uuid4())
        spec = pool.spec_for(internal_id)
        with self._runtime.metrics.refusals(Start.STANDBY):
            return self._begin(internal_id, spec, pool.standby)

    async def stop(self, internal_id: str, reason: EndReason, *, discard: bool = False) -> Session:
        """Have a session end and return it once it has; `discard` removes all that is left of it.

        Raises:
            SessionNotFound: The id is unknown; a tombstone is left that refuses a late start.
            CannotKill: The engine cannot end its process.
        """
        life = self._find(internal_id)
        if life is not None and not life.settled:
            self._tombstones.note(internal_id)  # before it is gone
        if life is not None and not life.session.state.ended:
            self._end(life, reason)
            await life.wait_for(lambda session: session.state.ended)
        if life is None or life.gone.is_set():
            await self._tombstones.bury(internal_id)
            raise SessionNotFound(internal_id)
        if life.unkillable:
            raise CannotKill(internal_id)
        if discard:
            await asyncio.shield(self._discards.get(internal_id) or self._begin_discard(life))
        return life.session

    def life(self, internal_id: str) -> Lifecycle:
        """A session to wait on; raises SessionNotFound."""
        life = self._find(internal_id)
        if life is None:
            raise SessionNotFound(internal_id)
        return life

    def all(self) -> list[Session]:
        """All sessions by creation, those whose start has not settled included."""
        return sorted(self.each(), key=lambda session: (session.create_time, session.internal_id))

    def each(self) -> Iterator[Session]:
        """All sessions, in no order."""
        return (life.session for life in self._lives.values() if not life.gone.is_set())

    def ended(self) -> list[Session]:
        """All sessions that have ended, in no order."""
        return [each.session for each in self._lives.values() if each.session.state.ended]

    def standbys(self) -> list[Lifecycle]:
        """All that nobody has claimed, ended ones and those in doubt included, in no order."""
        lives = self._lives.values()
        return [each for each in lives if each.session.is_standby and not each.gone.is_set()]

    def uses_image(self, image: str) -> bool:
        """True while a session that has not ended, or a container that is kept, is of an image."""
        return any(
            life.session.spec.image == image and not life.session.container_removed
            for life in self._lives.values()
        )

    def settled(self) -> list[Session]:
        """All sessions whose start has succeeded, by their sequence: what watchers are told."""
        return sorted(
            (life.session for life in self._lives.values() if life.settled),
            key=lambda session: session.sequence,
        )

    def starting(self) -> tuple[str, ...]:
        """Internal ids of those that hold a reservation, and whose start has not settled."""
        held = (
            self._reservations.capacity.holders
        )  # and not those that have ended, which may be many
        return tuple(i for i in held if i in self._lives and not self._lives[i].settled)

    # -- for the daemon ------------------------------------------------------------------------

    async def load(self) -> None:
        """Remember what the disk knows, before anything is served."""
        await self._reservations.drain.load()
        sessions, self._damaged = await self._runtime.records.load()
        await self._tombstones.load()
        for session in sessions:
            self._remember(session)
        # What was released last is used again last.
        for session in sorted(sessions, key=lambda found: found.end_time or found.create_time):
            self._reservations.ports.avoid(session.ports)

    async def adopt(self, containers: list[Container]) -> None:
        """Go on with every remembered session, given all containers of this agent.

        A started container whose directory is lost or damaged is remembered by its label.
        """
        # Of two that name one session, as a copy of somebody's does, its own goes first.
        own_last = sorted(containers, key=self._is_own)
        by_session = {found.labels[LABEL_SESSION]: found for found in own_last}
        self._own_adopted(by_session)
        for internal_id, found in by_session.items():
            if internal_id not in self._lives and found.status is not ContainerStatus.CREATED:
                await self._rebuild(internal_id, found)
        self._own_adopted(by_session)
        for internal_id, life in list(self._lives.items()):
            # A start that took place is told with the first complete snapshot, not after it.
            container = by_session.get(internal_id)
            started = container is not None and container.status is not ContainerStatus.CREATED
            if started and not life.settled:
                with contextlib.suppress(AgentError):
                    await life.settled_start()
        log.info("reconciled", sessions=len(self._lives), containers=len(containers))
        self.reconciled = True
        self._runtime.feed.ask_snapshot()

    def _own_adopted(self, by_session: Mapping[str, Container]) -> None:
        """Begin the tasks of sessions that have none."""
        for internal_id, life in self._lives.items():
            if internal_id not in self._tasks:
                self._own(internal_id, life.run_adopted(by_session.get(internal_id)))

    def _is_own(self, found: Container) -> tuple[bool, bool]:
        """What orders containers that name one session: its own is last, else one that runs."""
        life = self._lives.get(found.labels[LABEL_SESSION])
        own = life is not None and life.session.container == found.container
        return own, found.process is not None

    def may_reap(self, found: Container) -> bool:
        """False for a container of a newer agent, or a game whose label says nothing."""
        try:
            decode_label(found.labels)
        except NewerFormat:
            return False
        except ValueError:
            return found.process is None
        return True

    def knows(self, internal_id: str) -> bool:
        """True for a session that this agent answers for."""
        return internal_id in self._lives

    def looks_after(self, internal_id: str) -> bool:
        """True while a session's task sees for itself what becomes of its container."""
        life = self._lives.get(internal_id)
        return life is not None and not life.session.state.ended

    def is_over(self, internal_id: str) -> bool:
        """True for a session that has ended and left no process."""
        life = self._lives.get(internal_id)
        return life is not None and life.settled and not _holds(life.session)

    def expire_due(self) -> None:
        """End every session whose lifetime is over."""
        for internal_id in self._runtime.deadlines.pop_due():
            if internal_id == DRAIN:
                self._end_drain()
                continue
            life = self._lives.get(internal_id)
            if life is not None:
                log.info("lifetime is over", session=internal_id)
                self._runtime.metrics.lifetime_over(life.session, self._runtime.clock)
                self._end(life, EndReason.TTL)

    def end_beyond_disk(self, internal_id: str) -> None:
        """End a session that has written more than its limit of disk; nothing if it has ended."""
        life = self._lives.get(internal_id)
        if life is not None and not life.session.state.ended:
            self._end(life, EndReason.DISK)

    async def set_drain(self, order: DrainOrder) -> tuple[float | None, int]:
        """Begin or call off a drain, and have every game read of it in its session.json.

        Returns when the host will be empty at the latest, in Unix time, None when nothing says so,
        and how many sessions it has.

        Raises:
            StaleRevision: The order that holds is newer.
            DiskFull: It cannot be written.
        """
        drain = self._reservations.drain
        # A caller that goes away must not leave it half done, nor two write at one time.
        await self._drains.finish(self._set_drain(order), "drain")
        live = [each for each in self.all() if not (each.state.ended or each.is_given_back)]
        return drain.empty_time(live), len(live)

    async def _set_drain(self, order: DrainOrder) -> None:
        async with self._drain_lock:
            changed = await self._reservations.drain.set(order)
            for life in list(self._lives.values()) if changed else ():
                if life.settled and not life.session.state.ended:
                    await life.publish()

    def _end_drain(self) -> None:
        """End all that is left, and soon whatever turns up after that."""
        for life in self._lives.values():
            if not life.session.state.ended:
                log.info("ended by a drain", session=life.session.internal_id)
                self._end(life, EndReason.DRAIN)
        self._reservations.drain.renew()

    async def sweep(self, before: float) -> None:
        """Remove directories without a good record that nothing has written to since `before`."""
        lost = [internal_id for internal_id in self._damaged if not self.knows(internal_id)]
        self._damaged = await self._runtime.records.delete_old(lost, before)

    async def forget(self, internal_id: str) -> None:
        """Remove an ended session's directory and all that is known of it."""
        life = self._lives.get(internal_id)
        if life is None:
            return
        async with life.leaving:
            if not life.gone.is_set():
                del self._lives[internal_id]
                life.gone.set()
                await self._runtime.records.delete(internal_id)

    async def close(self) -> None:
        """Let go of all sessions; their containers run on."""
        tasks = [*self._tasks.values(), *self._discards.values(), *self._drains]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in late:
                log.warning("a task does not end", task=task.get_name())

    # -- inside --------------------------------------------------------------------------------

    def _find(self, internal_id: str) -> Lifecycle | None:
        """The session of this id, but for one whose start has left nothing."""
        life = self._lives.get(checked_id(internal_id))
        return None if life is None or life.gone.is_set() else life

    def _begin(
        self, internal_id: str, spec: SessionSpec, standby: Standby | None = None
    ) -> Lifecycle:
        starting.check_spec(self._runtime.settings, spec)
        now = self._runtime.clock.time()
        session = self._reservations.take(Session(internal_id, spec, now, standby=standby))
        life = Lifecycle(self._runtime, self._reservations, session)
        self._lives[internal_id] = life
        self._own(internal_id, life.run_new())
        self._runtime.feed.tell_host()
        return life

    def _end(self, life: Lifecycle, reason: EndReason) -> None:
        """Have a session end; before the engine has answered, by what its record tells."""
        life.ask_stop(reason)
        session = life.session
        has_task = self.reconciled or session.internal_id in self._tasks
        if session.process is not None and not has_task:
            self._own(session.internal_id, life.run_adopted(None))

    def _own(self, internal_id: str, body: Coroutine[None, None, None]) -> None:
        own = task_context("request", session=internal_id)
        task = asyncio.create_task(body, name=f"session-{internal_id}", context=own)
        self._tasks[internal_id] = task
        task.add_done_callback(lambda done: self._task_done(internal_id, done), context=own)

    def _task_done(self, internal_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(internal_id) is task:
            del self._tasks[internal_id]
        if internal_id in self._lives and self._lives[internal_id].gone.is_set():
            del self._lives[internal_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a task failed by a defect", session=internal_id, exc_info=error)

    def _remember(self, session: Session) -> None:
        life = Lifecycle(
            self._runtime,
            self._reservations,
            session.with_changes(sequence=self._runtime.feed.stamp()),
        )
        self._lives[session.internal_id] = life
        if not session.state.ended:
            life.arm()  # a lifetime is kept whether or not the engine answers
        if _holds(session):
            same_boot = session.boot_id == self._runtime.clock.boot_id
            self._reservations.adopt(session if same_boot else replace(session, process=None))

    async def _rebuild(self, internal_id: str, found: Container) -> None:
        """Remember a session by its container's label; one without a usable label is an orphan."""
        try:
            session = decode_label(found.labels)
        except ValueError as error:
            log.warning("a label is of no use", container=found.name, error=str(error))
            return
        if session.internal_id != internal_id or internal_id in self._tombstones:
            return
        log.warning("rebuilt from the label of its container", session=internal_id)
        if found.process is None:
            # Whether it was stopped is lost, and a manual stop is never followed by a start.
            session = session.with_changes(spec=replace(session.spec, restart=False))
        if session.standby is not None:  # the label is of its creation: it may have been claimed
            session = session.with_changes(standby=replace(session.standby, in_doubt=True))
        try:
            await self._runtime.records.create(session, self._reservations.drain.now)
        except DiskFull as error:
            log.warning("no record yet", session=internal_id, error=str(error))
        self._remember(session)

    def _begin_discard(self, life: Lifecycle) -> asyncio.Task[None]:
        internal_id = life.session.internal_id
        task = asyncio.create_task(self._discard(life), name=f"discard-{internal_id}")
        self._discards[internal_id] = task
        task.add_done_callback(lambda done: self._discard_done(internal_id, done))
        return task

    def _discard_done(self, internal_id: str, task: asyncio.Task[None]) -> None:
        del self._discards[internal_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("cannot be discarded yet", session=internal_id, error=str(error))

    async def _discard(self, life: Lifecycle) -> None:
        """Remove an ended session for good; whoever gets an error asks again."""
        internal_id = life.session.internal_id
        await life.wait_for(lambda session: session.log_sealed or session.container_removed)
        if not life.session.container_removed:
            await cleanup.remove_container(self._runtime, life)
        await self._tombstones.bury(internal_id)
        await self._runtime.failpoint("discard.buried")
        await self.forget(internal_id)
