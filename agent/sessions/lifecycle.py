"""The life of one session, from its reservation to its sealed log; one task runs it.

Every step is durable before the next begins, and named, so that tests can break it there. A
time-out of the engine means unknown: the step is read again, never assumed.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

from agent.domain import restarts
from agent.domain.deadlines import deadline_by
from agent.domain.engine import Container, ContainerStatus
from agent.domain.errors import (
    AgentError,
    DiskFull,
    EngineError,
    EngineUnavailable,
    PortTaken,
    SessionStopped,
)
from agent.domain.session import Drain, EndReason, Process, Session, State
from agent.sessions import cleanup, ending, readiness, session_log, starting
from agent.sessions.claims import Claiming
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS, BackOff
from tiltyard.runtime.first_completed import comes_first
from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)


class Lifecycle:
    """One session in the agent's keeping.

    `run_new` or `run_adopted` is the body of its task, and the only writer of its record.
    """

    def __init__(self, runtime: Runtime, reservations: Reservations, session: Session) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._session = session
        self._stop_reason = session.stop_reason
        self.stop_asked = asyncio.Event()
        if self._stop_reason is not None:
            self.stop_asked.set()
        self.claims = Claiming()
        self._changed = asyncio.Event()
        self._created = False
        """True once the engine has a container of this start."""
        self._refusals = 0
        """How often in a row the engine has refused to start it again."""
        self.start_error: AgentError | None = None
        self._start_settled = asyncio.Event()
        if self.settled:
            self._start_settled.set()
        self.gone = asyncio.Event()
        """Set once nothing is left of it: its start failed, or it was forgotten."""
        self.leaving = asyncio.Lock()
        """Held by whoever removes something of what it left at its end."""
        self.unkillable = False
        """True while a dead session's process survives SIGKILL."""

    @property
    def session(self) -> Session:
        """The session as it stands."""
        return self._session

    @property
    def settled(self) -> bool:
        """True once the start has succeeded; a session that never did is told to nobody."""
        return self._session.state is not State.CREATED

    async def settled_start(self) -> None:
        """Return when the start has succeeded; raises what it failed with."""
        await self._start_settled.wait()
        if self.start_error is not None:
            raise self.start_error

    async def wait_for(self, reached: Callable[[Session], bool]) -> None:
        """Return when the session is as asked, or is gone."""
        while not reached(self._session) and not self.gone.is_set():
            await self._changed.wait()

    def ask_stop(self, reason: EndReason) -> None:
        """Have the session end; the first reason counts."""
        if self._stop_reason is None:
            self._stop_reason = reason
            self.stop_asked.set()
            self.claims.asked.set()

    def arm(self) -> None:
        """Have the session come due when its lifetime is over."""
        if self._session.deadline is not None:
            self._runtime.deadlines.arm(self._session.internal_id, self._session.deadline)

    async def run_new(self) -> None:
        """Start the session, or undo all of it, and stay with it until its log is sealed."""
        try:
            held, session = self._reservations, self._session
            session = await starting.start(self._runtime, held, session, self._step)
        except AgentError as error:
            await self._undo(error)
        except Exception:
            log.exception("start failed by a defect")
            await self._undo(AgentError())
        else:
            self.take_in(session)
            self.arm()
            if self._reservations.drain.now != Drain():  # it may have begun or ended meanwhile
                await self.publish()
            self._start_settled.set()
            await self._stay()

    async def publish(self) -> bool:
        """Have the game read what holds now; False when a failure leaves it what it knew."""
        try:
            await self._runtime.records.publish(self._session, self._reservations.drain.now)
        except DiskFull as error:
            log.warning("game not told", session=self._session.internal_id, error=str(error))
            return False
        return True

    async def run_adopted(self, container: Container | None) -> None:
        """Go on with a session that an earlier run of the agent left; `container` as it is now."""
        session = self._session
        if session.state is State.CREATED:
            if container is None or container.status is ContainerStatus.CREATED:
                await self._undo(SessionStopped(session.internal_id))
                return
            await self._runtime.forget_flows(session.ports)
            await self.save_and_set(
                starting.running(self._runtime, session, container, deadline=session.deadline)
            )
            self._start_settled.set()
        elif not session.state.ended:
            found = await starting.as_found(self._runtime, session, container)
            self.take_in(found)
            if container is not None and starting.has_restarted(found, container):
                again = starting.running_again(self._runtime, self._session, container)
                await self.save_and_set(again)
            same_boot = session.boot_id in {"", self._runtime.clock.boot_id}
            if found.process is None and not same_boot:
                await self._outlast_reboot(container)
        await self._stay()

    async def _outlast_reboot(self, container: Container | None) -> None:
        """Start again what asks for restarts; the rest ended with the host."""
        session = self._session
        if not session.restarts:
            self.ask_stop(EndReason.HOST_RESTART)
        elif session.state is State.RUNNING:
            now, delay = self._runtime.clock.time(), restarts.FIRST_DELAY_SECONDS
            await self.save_and_set(ending.failed(session, container, delay=delay, now=now))

    # -- from state to state -------------------------------------------------------------------

    async def _stay(self) -> None:
        """Live on until the session has ended and is sealed; after a defect, go on from there."""
        while True:
            try:
                await self._live_and_seal()
            except Exception:
                log.exception("a step failed by a defect")
                await self._runtime.clock.sleep(RETRY_LONGEST_SECONDS)
            else:
                return

    async def _live_and_seal(self) -> None:
        while not self._session.state.ended:
            await self._live_on()
        if self._session.process is not None:
            await self._outlive(self._session.process)
        if not (self._session.log_sealed or self._session.container_removed):
            await cleanup.seal(self._runtime, self._reservations.disks, self)

    async def _live_on(self) -> None:
        """Do what the state asks for, until the next one."""
        state, process = self._session.state, self._session.process
        if process is not None:
            await self._runtime.usage.watch(process)
        if state is State.SHUTTINGDOWN:
            await self._shut_down()
        elif self._stop_reason is not None:
            if process is not None:
                await self._measure(process)
            await self.save_and_set(
                self._session.to(
                    State.SHUTTINGDOWN,
                    at=self._runtime.clock.time(),
                    stop_reason=self._stop_reason,
                )
            )
            await self._runtime.failpoint("stop.recorded")
        elif state is State.RUNNING:
            await self._run()
        else:
            await self._restart()

    async def _run(self) -> None:
        """Wait for the end of the process, or for a stop; then restart or finish."""
        process = self._session.process
        if process is not None:
            await readiness.watch(self._runtime, self, process)
            await self.claims.take(self._runtime, self)
            await self.claims.tell(self._runtime, self)
            ends, asked = ending.end_of(self._runtime, process), self.claims.asked.wait()
            if not await comes_first(ends, asked, f"wait-{self._session.internal_id}"):
                return
            await self._measure(process, last=True)
        session = self._session
        container = await ending.ended_container(self._runtime, session)
        if container is not None and container.process is not None:
            # Somebody else started it again; it is still this session.
            await self._runtime.forget_flows(session.ports)
            await self.save_and_set(starting.with_next_run(session, container))
        elif container is not None and restarts.should_restart(
            wanted=session.restarts,
            exit_code=container.exit_code,
            stopping=self._stop_reason is not None,
        ):
            now = self._runtime.clock.time()
            ran_for = (container.end_time or now) - (session.start_time or 0)
            delay = restarts.next_delay(session.restart_delay, ran_for)
            await self.save_and_set(ending.failed(session, container, delay=delay, now=now))
        else:
            await self._finish(container)

    async def _restart(self) -> None:
        """Wait the delay and start the container again; dead when the engine refuses for good."""
        session, runtime = self._session, self._runtime
        passed = runtime.clock.time() - session.since
        delay = restarts.remaining_delay(session.restart_delay, passed)
        if not await self._unless_stopped(runtime.clock.sleep(delay)):
            return
        slots = self._reservations.start_slots
        if not await self._unless_stopped(slots.acquire(session.spec.identity.account)):
            return
        try:
            container = None if self._stop_reason else await starting.start_again(runtime, session)
        except AgentError as error:
            await self._refused(error)
            return
        finally:
            slots.release()
        if container is None:
            return
        self._refusals = 0
        if container.has_lost_process:  # it failed at once
            container = await ending.ended_container(runtime, session)
        if container is None or container.has_lost_process:
            await self._finish(container)
            return
        await self.save_and_set(starting.running_again(runtime, session, container))
        await self._runtime.failpoint("restart.saved")

    async def _refused(self, error: AgentError) -> None:
        """Wait before the engine is asked again; dead when it has refused too often."""
        self._refusals += 1
        may_pass = isinstance(error, PortTaken | EngineError | DiskFull)
        if may_pass and self._refusals < restarts.TRIES:
            log.warning("cannot restart yet", error=str(error))
            delay = restarts.delay_after_refusals(self._refusals)
            await self._unless_stopped(self._runtime.clock.sleep(delay))
            return
        self._session = self._session.with_changes(detail=f"cannot restart: {error}")
        await self._finish(None)

    async def _shut_down(self) -> None:
        session, runtime = self._session, self._runtime
        process = session.process
        if process is not None and not await ending.end_process(runtime, session, process):
            await self._die_unkillable()
            return
        if process is not None:
            await self._measure(process, last=True)
        session = self._session
        await self._runtime.failpoint("stop.killed")
        container = await ending.ended_container(runtime, session)
        if container is not None and container.process is not None:
            # It runs after all, as after a restart whose answer was lost: end that process.
            await self.save_and_set(starting.with_next_run(session, container))
        else:
            await self._finish(container)

    async def _die_unkillable(self) -> None:
        """Call the session dead; it keeps its process, and with that its ports and reservation."""
        self.unkillable = True
        self._runtime.deadlines.clear(self._session.internal_id)
        now = self._runtime.clock.time()
        await self.save_and_set(
            self._session.to(
                State.DEAD,
                at=now,
                end_time=now,
                end_reason=self._session.stop_reason,
                detail="its process survives SIGKILL",
                kept_since=deadline_by(self._runtime.clock, 0),
            )
        )

    async def _outlive(self, process: Process) -> None:
        """Kill again and again, and give back what the dead session holds once that is done."""
        self.unkillable = True
        while not await ending.kill_process(self._runtime, self._session, process):
            continue
        self.unkillable = False
        await self._measure(process, last=True)
        self._reservations.release(self._session.internal_id)
        await self.save_and_set(self._session.with_changes(process=None))

    async def _finish(self, container: Container | None) -> None:
        """Record the end, give back what the session held, and tell."""
        session = ending.ended(self._session, container, now=self._runtime.clock.time())
        session = session.with_changes(kept_since=deadline_by(self._runtime.clock, 0))
        await self._runtime.failpoint("end.confirmed")
        self._runtime.deadlines.clear(session.internal_id)
        await self.save_and_set(session)
        # Not before that is recorded: another session may take the ports at once.
        self._reservations.release(session.internal_id)
        await self._runtime.failpoint("end.saved")

    async def _undo(self, error: AgentError) -> None:
        """Leave nothing of a start that failed; answer first when the engine cannot help now."""
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                await self._remove_traces(error)
                break
            except AgentError as trouble:
                log.warning("cannot undo yet", error=str(trouble))
                self._settle(error)
                await back_off.wait()
            except Exception:
                log.exception("undoing met a defect")
                self._settle(error)
                await self._runtime.clock.sleep(RETRY_LONGEST_SECONDS)
        self._runtime.deadlines.clear(self._session.internal_id)
        self._reservations.release(self._session.internal_id)
        self.gone.set()
        self._tell_waiters()
        self._settle(error)

    async def _remove_traces(self, error: AgentError) -> None:
        """Undo once; an engine that was gone before it was asked for a container has none."""
        try:
            await starting.undo(self._runtime, self._session)
        except EngineUnavailable:
            if self._created or not isinstance(error, EngineUnavailable):
                raise
            await self._runtime.records.delete(self._session.internal_id)

    # -- bookkeeping ---------------------------------------------------------------------------

    async def _unless_stopped(self, waited: Coroutine[Any, Any, object]) -> bool:
        """Wait for something (True) or for a stop to be asked (False)."""
        return await comes_first(
            waited, self.stop_asked.wait(), f"wait-{self._session.internal_id}"
        )

    async def _measure(self, process: Process, *, last: bool = False) -> None:
        """Note what the run has used; it is recorded with the next change."""
        usage = self._session.run_usage | await self._runtime.usage.read(process, last=last)
        self._session = self._session.with_changes(run_usage=usage)

    async def _step(self, name: str) -> None:
        """A named step of the start; a stop that came meanwhile ends the start there."""
        self._created = self._created or name == "start.created"
        await self._runtime.failpoint(name)
        if self._stop_reason is not None:
            raise SessionStopped(self._session.internal_id)

    def _settle(self, error: AgentError) -> None:
        self.start_error = self.start_error or error
        self._start_settled.set()

    async def save_and_set(self, session: Session) -> None:
        """Record a change, then tell it. A full disk does not stop what already runs."""
        try:
            await self._runtime.records.save(session)
        except DiskFull as error:
            log.warning("a change is not recorded", session=session.internal_id, error=str(error))
            await self._runtime.records.mark_stop(session)
        self.take_in(session)

    def take_in(self, session: Session) -> None:
        """Take in what is recorded; its sequence is counted where it is told: both agree."""
        self._runtime.metrics.session_changed(self._session, session)
        session_log.tell(self._session, session)
        self._session = session.with_changes(sequence=self._runtime.feed.stamp())
        self._reservations.tls_ports.follow(self._session)
        self.claims.follow(self._session)
        self._tell_waiters()
        if self.settled:
            self._runtime.feed.tell_session(self._session)

    def _tell_waiters(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()
