"""All sessions of a host: admission, and the owner of every session's task."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import re
from collections.abc import Coroutine

from agent.engine import LABEL_RECORD, LABEL_SESSION, Container, ContainerStatus
from agent.errors import (
    AgentError,
    CannotKill,
    InvalidArgument,
    NotReconciled,
    SessionNotFound,
    SessionStopped,
    SpecConflict,
)
from agent.host import Host
from agent.lifecycle import Lifecycle
from agent.record import TOMBSTONE_SECONDS, decode_session
from agent.session import (
    EndReason,
    Session,
    SessionSpec,
    container_environment,
    injected_environment,
)

log = logging.getLogger(__name__)

CLOSE_SECONDS = 5.0
"""How long session tasks may take to let go; containers outlive the agent, so they need little."""

_INTERNAL_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")


def checked_internal_id(internal_id: str) -> str:
    """The id when it is a lower-case UUID, which alone may name folders and containers."""
    if not _INTERNAL_ID.fullmatch(internal_id):
        raise InvalidArgument("internal_id", "it is not a lower-case UUID")
    return internal_id


class SessionManager:
    """Starts, stops and knows the sessions of a host.

    An RPC never owns work: it starts or joins a session's task here, and waits.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self._lives: dict[str, Lifecycle] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._discards: dict[str, asyncio.Task[None]] = {}
        self._tombstones: dict[str, float] = {}
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
        if life is not None and not life.session.state.ended:
            life.ask_stop(reason)
            await life.wait_for(lambda session: session.state.ended)
        if life is None or life.gone.is_set():
            await self._bury(internal_id)
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
        sessions, _ = await self._host.records.load()
        self._tombstones = await self._host.records.load_tombstones(self._host.clock.time())
        for session in sessions:
            self._remember(session)

    async def adopt(self, containers: list[Container]) -> None:
        """Go on with every remembered session, given all containers of this agent.

        A started container whose directory is lost or damaged is remembered by its label.
        """
        by_session = {found.labels[LABEL_SESSION]: found for found in containers}
        for internal_id, found in by_session.items():
            if internal_id not in self._lives and found.status is not ContainerStatus.CREATED:
                await self._rebuild(internal_id, found)
        for internal_id, life in self._lives.items():
            if internal_id not in self._tasks:
                self._own(internal_id, life.run_adopted(by_session.get(internal_id)))
        for internal_id, life in list(self._lives.items()):
            # A start that took place is told with the first complete snapshot, not after it.
            if not life.settled and internal_id in by_session:
                with contextlib.suppress(AgentError):
                    await life.settled_start()
        log.info(
            "reconciled: %d sessions remembered, %d containers found",
            len(self._lives),
            len(containers),
        )
        self.reconciled = True
        self._host.feed.ask_snapshot()

    def knows(self, internal_id: str) -> bool:
        """True for a session that this agent answers for."""
        return internal_id in self._lives

    def expire_due(self) -> None:
        """End every session whose lifetime is over."""
        for internal_id in self._host.deadlines.pop_due(self._host.clock.boottime()):
            life = self._lives.get(internal_id)
            if life is not None:
                log.info("session %s: its lifetime is over", internal_id)
                life.ask_stop(EndReason.TTL)

    async def forget(self, internal_id: str) -> None:
        """Remove an ended session's directory, and with it the last that is known of it."""
        self._lives.pop(internal_id, None)
        await self._host.records.delete(internal_id)

    async def close(self) -> None:
        """Let go of all sessions; their containers run on."""
        tasks = [*self._tasks.values(), *self._discards.values()]
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
        if now - self._tombstones.get(internal_id, -TOMBSTONE_SECONDS) < TOMBSTONE_SECONDS:
            raise SessionStopped(internal_id)
        host.policy.check_spec(spec)
        self._check_environment(spec)
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

    def _check_environment(self, spec: SessionSpec) -> None:
        """Refuse names that this host injects before anything is reserved."""
        names = injected_environment(
            self._host.settings.env_prefixes,
            spec.identity.session_id,
            self._host.settings.public_address,
            (),
        )
        for port in spec.ports:
            suffix = f"_PORT_{port.protocol.value.upper()}_{port.container}"
            names |= {prefix + suffix: "" for prefix in self._host.settings.env_prefixes}
        container_environment(spec.env, names)

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
        self._lives[session.internal_id] = Lifecycle(
            self._host, session.with_changes(sequence=self._host.feed.stamp())
        )
        if session.state.ended and session.process is None:
            # What was released last is used again last.
            self._host.ports.avoid(session.ports)
        else:
            self._host.ports.adopt(session.internal_id, session.ports)
            self._host.capacity.adopt(
                session.internal_id, session.spec.reservation, session.gpu_ids
            )

    async def _rebuild(self, internal_id: str, found: Container) -> None:
        """Remember a session by its container's label; one without a usable label is an orphan."""
        try:
            session = decode_session(found.labels[LABEL_RECORD].encode())
        except (KeyError, ValueError) as error:
            log.warning("container %s: its label is of no use: %s", found.name, error)
            return
        if session.internal_id != internal_id or internal_id in self._tombstones:
            return
        log.warning("session %s: rebuilt from the label of its container", internal_id)
        await self._host.records.create(session)
        self._remember(session)

    def _begin_discard(self, life: Lifecycle) -> asyncio.Task[None]:
        internal_id = life.session.internal_id
        task = asyncio.create_task(self._discard(life), name=f"discard-{internal_id}")
        self._discards[internal_id] = task
        task.add_done_callback(lambda _: self._discards.pop(internal_id))
        return task

    async def _discard(self, life: Lifecycle) -> None:
        """Remove an ended session for good; whoever gets an error asks again."""
        internal_id = life.session.internal_id
        await life.wait_for(lambda session: session.log_sealed or session.container_removed)
        if not life.session.container_removed:
            await life.forget_container()
        await self._bury(internal_id)
        await self.forget(internal_id)

    async def _bury(self, internal_id: str) -> None:
        now = self._host.clock.time()
        self._tombstones = {
            known: made
            for known, made in self._tombstones.items()
            if now - made < TOMBSTONE_SECONDS
        } | {internal_id: now}
        await self._host.records.add_tombstone(internal_id, now)
