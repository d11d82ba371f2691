"""All sessions of a host: admission, and the owner of every session's task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine, Mapping
from dataclasses import replace

from agent.engine import LABEL_SESSION, Container, ContainerStatus
from agent.errors import (
    AgentError,
    CannotKill,
    DiskFull,
    Draining,
    InvalidArgument,
    NotReconciled,
    SessionNotFound,
    SessionStopped,
    SpecConflict,
)
from agent.host import Host
from agent.sessions import leftovers, starting
from agent.sessions.drain import DRAIN
from agent.sessions.lifecycle import Lifecycle
from agent.sessions.record import decode_label
from agent.sessions.session import EndReason, Session, SessionSpec
from agent.sessions.tombstones import Tombstones

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long session tasks may take to let go; containers outlive the agent, so they need little."""

_INTERNAL_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def checked_internal_id(internal_id: str) -> str:
    """The id when it is a lower-case UUID, which alone may name folders and containers."""
    if not _INTERNAL_ID.fullmatch(internal_id):
        raise InvalidArgument("internal_id", "it is not a lower-case UUID")
    return internal_id


def _holds(session: Session) -> bool:
    """True while a session has its ports and reservation; a dead one may still have a process."""
    return not session.state.ended or session.process is not None


class SessionManager:
    """Starts, stops and knows the sessions of a host.

    An RPC never owns work: it starts or joins a session's task here, and waits.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lives: dict[str, Lifecycle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._discards: dict[str, asyncio.Task[None]] = {}
        self._tombstones = Tombstones(host.records, host.clock)
        self._damaged: list[str] = []
        self._drains: set[asyncio.Task[None]] = set()
        self._drain_lock = asyncio.Lock()
        self.reconciled = False
        """True once the records have been compared with the engine; starts wait for it."""

    # -- for callers ---------------------------------------------------------------------------

    async def start(self, internal_id: str, spec: SessionSpec) -> Session:
        """Start a session, or join the start of this id, and return it once it runs.

        Raises what StartSession of agent.proto names.
        """
        life = self._find(internal_id)
        if life is None:
            life = self._admit(internal_id, spec)
        elif life.session.spec != spec:
            raise SpecConflict(internal_id)
        await life.settled_start()
        return life.session

    async def stop(self, internal_id: str, reason: EndReason, *, discard: bool = False) -> Session:
        """Have a session end and return it once it has; `discard` removes all that is left of it.

        Raises SessionNotFound for an unknown id, leaving a tombstone that refuses a late start,
        and CannotKill.
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
        return sorted(
            (life.session for life in self._lives.values() if not life.gone.is_set()),
            key=lambda session: (session.create_time, session.internal_id),
        )

    def ended(self) -> list[Session]:
        """All sessions that have ended, in no order."""
        return [each.session for each in self._lives.values() if each.session.state.ended]

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

    # -- for the daemon ------------------------------------------------------------------------

    async def load(self) -> None:
        """Remember what the disk knows, before anything is served."""
        await self._host.drain.load()
        sessions, self._damaged = await self._host.records.load()
        await self._tombstones.load()
        for session in sessions:
            self._remember(session)
        # What was released last is used again last.
        for session in sorted(sessions, key=lambda found: found.end_time or found.create_time):
            self._host.ports.avoid(session.ports)

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
        log.info(
            "reconciled: %d sessions remembered, %d containers found",
            len(self._lives),
            len(containers),
        )
        self.reconciled = True
        self._host.feed.ask_snapshot()

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

    def can_read(self, found: Container) -> bool:
        """True when a session could be rebuilt from a container's label."""
        try:
            decode_label(found.labels)
        except ValueError:
            return False
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
        for internal_id in self._host.deadlines.pop_due(self._host.clock.boottime()):
            if internal_id == DRAIN:
                self._end_drain()
                continue
            life = self._lives.get(internal_id)
            if life is not None:
                log.info("session %s: its lifetime is over", internal_id)
                self._end(life, EndReason.TTL)

    async def set_drain(
        self, revision: int, *, draining: bool, expire_time: float | None
    ) -> tuple[float | None, int]:
        """Begin or call off a drain, and have every game read of it in its session.json.

        Returns when the host will be empty at the latest, in Unix time, None when nothing says so,
        and how many sessions it has. Raises StaleRevision and DiskFull.
        """
        drain = self._host.drain
        # A caller that goes away must not leave it half done, nor two write at one time.
        task = asyncio.create_task(
            self._set_drain(revision, draining=draining, expire_time=expire_time), name="drain"
        )
        self._drains.add(task)
        task.add_done_callback(self._drains.discard)
        await asyncio.shield(task)
        live = [session for session in self.all() if not session.state.ended]
        return drain.empty_time(live), len(live)

    async def _set_drain(
        self, revision: int, *, draining: bool, expire_time: float | None
    ) -> None:
        async with self._drain_lock:
            changed = await self._host.drain.set(
                revision, draining=draining, expire_time=expire_time
            )
            for life in list(self._lives.values()) if changed else ():
                if life.settled and not life.session.state.ended:
                    await life.publish()

    def _end_drain(self) -> None:
        """End all that is left, and soon whatever turns up after that."""
        for life in self._lives.values():
            if not life.session.state.ended:
                log.info("session %s: its host is drained", life.session.internal_id)
                self._end(life, EndReason.DRAIN)
        self._host.drain.renew()

    async def sweep(self, before: float) -> None:
        """Remove directories without a good record that nothing has written to since `before`."""
        lost = [internal_id for internal_id in self._damaged if not self.knows(internal_id)]
        self._damaged = await self._host.records.delete_old(lost, before)

    async def forget(self, internal_id: str) -> None:
        """Remove an ended session's directory and all that is known of it."""
        life = self._lives.get(internal_id)
        if life is None:
            return
        async with life.leaving:
            if not life.gone.is_set():
                del self._lives[internal_id]
                life.gone.set()
                await self._host.records.delete(internal_id)

    async def close(self) -> None:
        """Let go of all sessions; their containers run on."""
        tasks = [*self._tasks.values(), *self._discards.values(), *self._drains]
        for task in tasks:
            task.cancel()
        if tasks:
            _, late = await asyncio.wait(tasks, timeout=CLOSE_SECONDS)
            for task in late:
                log.warning("task %s does not end", task.get_name())

    # -- inside --------------------------------------------------------------------------------

    def _find(self, internal_id: str) -> Lifecycle | None:
        """The session of this id, but for one whose start has left nothing."""
        life = self._lives.get(checked_internal_id(internal_id))
        return None if life is None or life.gone.is_set() else life

    def _admit(self, internal_id: str, spec: SessionSpec) -> Lifecycle:
        """Reserve and begin in one step of the event loop, or refuse."""
        host, now = self._host, self._host.clock.time()
        if not self.reconciled:
            raise NotReconciled
        if internal_id in self._tombstones:
            raise SessionStopped(internal_id)
        if host.drain.now.draining:
            raise Draining
        host.disks.check()
        host.policy.check_spec(spec)
        starting.check_environment(host, spec)
        gpu_ids = host.capacity.reserve(internal_id, spec.reservation)
        try:
            ports = host.ports.reserve(internal_id, spec.ports)
        except Exception:
            host.capacity.release(internal_id)
            raise
        session = Session(internal_id, spec, create_time=now, ports=ports, gpu_ids=gpu_ids)
        life = Lifecycle(host, session)
        self._lives[internal_id] = life
        self._own(internal_id, life.run_new())
        host.feed.tell_host()
        return life

    def _end(self, life: Lifecycle, reason: EndReason) -> None:
        """Have a session end; before the engine has answered, by what its record tells."""
        life.ask_stop(reason)
        session = life.session
        has_task = self.reconciled or session.internal_id in self._tasks
        if session.process is not None and not has_task:
            self._own(session.internal_id, life.run_adopted(None))

    def _own(self, internal_id: str, body: Coroutine[None, None, None]) -> None:
        task = asyncio.create_task(body, name=f"session-{internal_id}")
        self._tasks[internal_id] = task
        task.add_done_callback(lambda done: self._task_done(internal_id, done))

    def _task_done(self, internal_id: str, task: asyncio.Task[None]) -> None:
        if self._tasks.get(internal_id) is task:
            del self._tasks[internal_id]
        if internal_id in self._lives and self._lives[internal_id].gone.is_set():
            del self._lives[internal_id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("session %s: its task failed by a defect", internal_id, exc_info=error)

    def _remember(self, session: Session) -> None:
        life = Lifecycle(self._host, session.with_changes(sequence=self._host.feed.stamp()))
        self._lives[session.internal_id] = life
        if not session.state.ended:
            life.arm()  # a lifetime is kept whether or not the engine answers
        if _holds(session):
            self._host.ports.adopt(session.internal_id, session.ports)
            self._host.capacity.adopt(
                session.internal_id, session.spec.reservation, session.gpu_ids
            )

    async def _rebuild(self, internal_id: str, found: Container) -> None:
        """Remember a session by its container's label; one without a usable label is an orphan."""
        try:
            session = decode_label(found.labels)
        except ValueError as error:
            log.warning("container %s: its label is of no use: %s", found.name, error)
            return
        if session.internal_id != internal_id or internal_id in self._tombstones:
            return
        log.warning("session %s: rebuilt from the label of its container", internal_id)
        if found.process is None:
            # Whether it was stopped is lost, and a manual stop is never followed by a start.
            session = session.with_changes(spec=replace(session.spec, restart=False))
        try:
            await self._host.records.create(session, self._host.drain.now)
        except DiskFull as error:
            log.warning("session %s: it has no record yet: %s", internal_id, error)
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
            log.warning("session %s: cannot be discarded yet: %s", internal_id, error)

    async def _discard(self, life: Lifecycle) -> None:
        """Remove an ended session for good; whoever gets an error asks again."""
        internal_id = life.session.internal_id
        await life.wait_for(lambda session: session.log_sealed or session.container_removed)
        if not life.session.container_removed:
            await leftovers.remove_container(self._host, life)
        await self._tombstones.bury(internal_id)
        await self._host.reach("discard.buried")
        await self.forget(internal_id)
