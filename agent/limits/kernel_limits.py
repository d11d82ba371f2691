"""Limits of running containers, compared with the records of their sessions and set again.

Other programs change them: `docker update`, or `systemctl daemon-reload`, after which systemd has
lifted the limit of swap with cgroup v2 and the engine's default driver. The comparison reads files
of the kernel; the engine is asked only to set limits again.
"""

from agent.domain.errors import AgentError, ContainerGoneError
from agent.domain.host.kernel_limits import ContainerLimits
from agent.domain.kept.retry_delays import RetryDelays
from agent.domain.sessions.session import Process, Session
from agent.sessions.manager import SessionManager
from agent.sessions.runtime import Runtime
from tiltyard.contract import State
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained

log = get_logger(__name__)

LOOK_SECONDS = 10.0  # Between two comparisons of all sessions, on a thread


class LimitWatch:
    """Compares the limits of all running sessions, and sets again those that were changed."""

    def __init__(self, runtime: Runtime, sessions: SessionManager) -> None:
        self._runtime = runtime
        self._sessions = sessions
        self._retry_delays = RetryDelays()
        """Sessions whose limits were set again: not at each look if that does not help."""

    async def run(self) -> None:
        """Compare until cancelled."""
        while True:
            await self._runtime.clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Compare the limits of all running sessions once."""
        now = self._runtime.clock.monotonic()
        held_back = self._retry_delays.held_back(now)
        running = {
            session.process: session
            for session in self._sessions.all()
            if session.state is State.RUNNING and session.process is not None
        }
        self._retry_delays.keep({session.internal_id for session in running.values()}, now)
        wanted = {
            process: self._wanted(session)
            for process, session in running.items()
            if session.internal_id not in held_back
        }
        changed: dict[Process, tuple[str, ...]] = {}
        with contained("cannot compare limits: internal error"):
            try:
                changed.update(await self._runtime.engine.changed_limits(wanted))
            except AgentError as error:
                log.warning("cannot compare limits", error=str(error))
        for process, names in changed.items():
            session = running[process]
            with contained("cannot set limits: internal error", session=session.internal_id):
                await self._set(session, names)

    async def _set(self, session: Session, names: tuple[str, ...]) -> None:
        """Set the limits of a session again."""
        what = ", ".join(names)
        cause = ""
        try:
            await self._runtime.engine.set_limits(session.container, self._wanted(session))
        except ContainerGoneError:
            return  # the session's task handles that
        except AgentError as error:
            cause = str(error)
            log.warning("cannot set limits", session=session.internal_id, error=cause)
        else:
            log.warning("limits were changed, set again", session=session.internal_id, kind=what)
        now = self._runtime.clock.monotonic()
        self._retry_delays.note(session.internal_id, cause, now)

    def _wanted(self, session: Session) -> ContainerLimits:
        spec = session.spec
        return ContainerLimits(spec.reservation, spec.limits, self._runtime.pids_limit(spec))
