"""Recovery of sessions from an earlier run of the agent: records matched with containers."""

import contextlib
from dataclasses import replace

from agent.domain.containers.engine import LABEL_INIT, Container, ContainerStatus
from agent.domain.containers.owners import Owned, assign
from agent.domain.errors import AgentError, DiskFullError
from agent.domain.sessions.session import Session, Standby
from agent.sessions.manager import SessionManager
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from agent.state.encoding import decode_label
from tiltyard.contract import State
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)


class Recovery:
    """Loads the records, and resumes their sessions once the engine lists its containers."""

    def __init__(
        self, runtime: Runtime, reservations: Reservations, sessions: SessionManager
    ) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._sessions = sessions
        self._damaged: list[str] = []  # Ids of directories without a readable record
        self._unrestored: set[str] = set()
        """Ids of containers without a session, after an unexpected error: each pass retries."""

    async def load(self) -> None:
        """Load the records, before anything is served."""
        await self._reservations.drain.load()
        sessions, self._damaged = await self._runtime.records.load()
        await self._sessions.tombstones.load()
        for session in sessions:
            with contained("cannot load a session: internal error", session=session.internal_id):
                self._sessions.remember(session)
        # Recently released ports are reused last.
        for session in sorted(sessions, key=lambda found: found.end_time or found.create_time):
            self._reservations.ports.avoid(session.ports)

    async def adopt(self, containers: list[Container]) -> None:
        """Resume all loaded sessions, and those of started containers with a lost record."""
        owned, _ = assign(containers, self._sessions.each())
        own = {life.session.container for life in self._sessions.lives}
        # If two containers have one session's label, as copies do: its own, else the running one.
        own_last = sorted(
            owned,
            key=lambda each: (each.container.container in own, bool(each.container.process)),
        )
        by_session = dict(own_last)
        self._resume(by_session)
        for internal_id, found in by_session.items():
            if _has_run(found) and self._sessions.find(internal_id) is None:
                await self._restore(internal_id, found)
        self._resume(by_session)
        for life in self._sessions.lives:
            # The first complete snapshot includes starts that took place.
            container = by_session.get(life.session.internal_id)
            if container is not None and container.executes and not life.started:
                with contextlib.suppress(AgentError):
                    await life.wait_started()

    async def retry(self, owned: list[Owned]) -> None:
        """Retry to restore the sessions whose restoration has failed with an unexpected error."""
        if not self._unrestored:
            return
        by_session = dict(owned)
        self._unrestored &= by_session.keys()
        for internal_id in sorted(self._unrestored):
            self._unrestored.discard(internal_id)
            await self._restore(internal_id, by_session[internal_id])
        self._resume(by_session)

    def may_reap(self, internal_id: str, found: Container) -> bool:
        """Return whether an orphaned container may be removed.

        Not if it runs and its label is unreadable, which is left to the operator, or if its
        session could not be restored yet.
        """
        if internal_id in self._unrestored:
            return False
        try:
            decode_label(found.labels)
        except ValueError:
            return found.process is None
        return True

    async def sweep(self, before: float) -> None:
        """Remove directories without a readable record and unmodified since `before`."""
        lost = [each for each in self._damaged if self._sessions.find(each) is None]
        self._damaged = await self._runtime.records.delete_old(lost, before)

    def _resume(self, by_session: dict[str, Container]) -> None:
        for life in self._sessions.lives:
            internal_id = life.session.internal_id
            with contained("cannot resume a session: internal error", session=internal_id):
                self._sessions.resume(life, by_session.get(internal_id))

    async def _restore(self, internal_id: str, found: Container) -> None:
        with contained("cannot restore a session: internal error", session=internal_id):
            await self._rebuild(internal_id, found)
            return
        self._unrestored.add(internal_id)

    async def _rebuild(self, internal_id: str, found: Container) -> None:
        """Restore a session from its container's label; without a valid one it is an orphan."""
        try:
            session = _as_labelled(internal_id, found)
        except ValueError as error:
            log.warning("a label is invalid", container=found.name, error=str(error))
            return
        if session.internal_id != internal_id or internal_id in self._sessions.tombstones:
            return
        log.warning("rebuilt from the label of its container", session=internal_id)
        try:
            await self._runtime.records.create(session, self._reservations.drain.now)
            await self._runtime.records.flush(session.internal_id)
        except DiskFullError as error:
            log.warning("no record yet", session=internal_id, error=str(error))
        self._sessions.remember(session)


def _has_run(found: Container) -> bool:
    """Return whether a program may have been executed in a container."""
    return found.status is not ContainerStatus.CREATED and not found.waits


def _as_labelled(internal_id: str, found: Container) -> Session:
    """Return a session by the label of its container, which dates from the container's creation.

    The label of a prepared container has the shape alone: the control plane repeats the rest of
    the session, as for a claimed standby. Raises ValueError if the label is invalid.
    """
    session = decode_label(found.labels)
    if session.is_template:
        standby = Standby(session.prepared, 0)
        session = session.with_changes(internal_id=internal_id, standby=standby)
    if found.process is None or found.labels.get(LABEL_INIT):
        # It may have been stopped, and a stopped session must not restart; or its arguments and
        # environment, which its init would need again, were lost with the record.
        session = session.with_changes(spec=replace(session.spec, restart=False))
    if found.process is None:
        session = session.to(State.RUNNING, at=session.create_time)
    if session.standby is not None:  # it may have been claimed
        session = session.with_changes(standby=replace(session.standby, in_doubt=True))
    return session
