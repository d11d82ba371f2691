"""The task of one session, from its reservation to its sealed log.

Every step is durable before the next begins, and is a failpoint for tests; the first record at the
latest before its container starts. After an engine timeout the outcome is unknown and is read
again, never assumed.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from agent.domain import restarts
from agent.domain.deadlines import deadline_by
from agent.domain.engine import Container, ContainerStatus, container_name
from agent.domain.errors import (
    AgentError,
    DiskFullError,
    EngineError,
    PortTakenError,
    SessionStoppedError,
)
from agent.domain.session import Drain, Process
from agent.sessions import claims, cleanup, ending, readiness, starting
from agent.sessions.life import Life
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, State
from tiltyard.runtime.back_off import RETRY_LONGEST_SECONDS, BackOff, pause
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained, first_completed

log = get_logger(__name__)


class Lifecycle:
    """Drives one session: `run_new` or `run_adopted` is its task."""

    def __init__(self, runtime: Runtime, reservations: Reservations, life: Life) -> None:
        self._runtime = runtime
        self._reservations = reservations
        self._life = life
        self._refusals = 0  # Consecutive restarts that the engine has refused
        self._in_doubt = False  # True while an earlier restart may run, unknown to the engine

    async def run_new(self) -> None:
        """Start the session and drive it until its log is sealed; undo a failed start."""
        await self._run_each(self._start, self._drive)

    async def run_adopted(self, container: Container | None) -> None:
        """Continue a session from an earlier run of the agent; `container` as it is now."""
        await self._run_each(partial(self._adopt, container), self._drive)

    async def _run_each(self, *parts: Callable[[], Awaitable[None]]) -> None:
        """Run the parts of the task; after an unexpected error, run the same part again.

        So no session is left without its task, and its container always has a session.
        """
        life = self._life
        for part in parts:
            while not life.removed.is_set():
                with contained("step failed: internal error"):
                    await part()
                    break
                if not life.started:
                    life.finish_start(AgentError())  # its callers must not wait until it works
                await self._runtime.clock.sleep(RETRY_LONGEST_SECONDS)

    async def _start(self) -> None:
        """Start the session, unless an earlier try has started it."""
        life = self._life
        held = self._reservations
        if not life.started:
            try:
                session = await starting.start(self._runtime, held, life.session, self._step)
            except AgentError as error:
                await self._undo(error)
                return
            except Exception:
                log.exception("start failed: internal error")
                await self._undo(AgentError())
                return
            life.apply(session)
        life.arm()
        if held.drain.now != Drain():  # may have changed since session.json was written
            await life.publish()
        life.finish_start()

    async def _adopt(self, container: Container | None) -> None:
        life = self._life
        session = self._life.session
        if session.state is State.CREATED:
            if container is None or container.status is ContainerStatus.CREATED:
                await self._undo(SessionStoppedError(session.internal_id))
                return
            await self._runtime.forget_flows(session.ports, forwarded=False)
            deadline = session.deadline
            await life.save(starting.running(self._runtime, session, container, deadline=deadline))
            life.finish_start()
        elif not session.state.ended:
            found = await starting.as_found(self._runtime, session, container)
            life.apply(found)
            self._in_doubt = found.state is State.RESTARTING
            if self._in_doubt and container and (container.start_time or 0) > found.since:
                # A restart that was not recorded.
                again = starting.running_again(self._runtime, life.session, container)
                await life.save(again)
            same_boot = session.boot_id in {"", self._runtime.clock.boot_id}
            if found.process is None and not same_boot:
                await self._handle_reboot(container)

    async def _handle_reboot(self, container: Container | None) -> None:
        """Restart a session with `restarts` set; end any other."""
        session = self._life.session
        if not session.restarts:
            self._life.ask_stop(EndReason.HOST_RESTART)
        elif session.state is State.RUNNING:
            now = self._runtime.clock.time()
            delay = restarts.FIRST_DELAY_SECONDS
            await self._life.save(ending.failed(session, container, delay=delay, now=now))

    # -- from state to state -------------------------------------------------------------------

    async def _drive(self) -> None:
        """Drive the session until it has ended and is sealed."""
        life = self._life
        while not life.session.state.ended:
            await self._handle_state()
        if life.session.process is not None:
            await self._await_unkillable(life.session.process)
        if not (life.session.log_sealed or life.session.container_removed):
            await cleanup.seal(self._runtime, self._reservations.disks, life)

    async def _handle_state(self) -> None:
        """Handle the current state until it changes."""
        life = self._life
        state = self._life.session.state
        process = self._life.session.process
        if process is not None:
            await self._runtime.usage.watch(process)
        if state is State.SHUTTINGDOWN:
            await self._shut_down()
        elif life.stop_reason is not None:
            if process is not None:
                await self._measure(process)
            now = self._runtime.clock.time()
            stopping = life.session.to(State.SHUTTINGDOWN, at=now, stop_reason=life.stop_reason)
            await life.save(stopping)
            await self._runtime.failpoint("stop.recorded")
        elif state is State.RUNNING:
            await self._run()
        else:
            await self._restart()

    async def _run(self) -> None:
        """Wait for the process to end, then restart or finish; return early on a stop."""
        life = self._life
        runtime = self._runtime
        process = self._life.session.process
        if process is not None:
            await readiness.watch(runtime, life, process)
            if not await self._ends_unless_stopped(process):
                return
            await self._measure(process, last=True)
        session = life.session
        container = await ending.ended_container(runtime, session)
        if container is not None and container.process is not None:
            # Restarted externally: it is still this session.
            await runtime.forget_flows(session.ports, forwarded=False)
            await life.save(session.with_next_run(container.process, container.address))
        elif (
            container is not None
            and session.restarts
            and life.stop_reason is None
            and container.exit_code != 0  # an unknown one counts as a failure
        ):
            now = runtime.clock.time()
            ran_for = (container.end_time or now) - (session.start_time or 0)
            delay = restarts.next_delay(session.restart_delay, ran_for)
            await life.save(ending.failed(session, container, delay=delay, now=now))
        else:
            await self._finish(container)

    async def _ends_unless_stopped(self, process: Process) -> bool:
        """Wait for the end of the process (True) or a request to stop; meanwhile do claims."""
        life = self._life
        name = f"wait-{life.session.internal_id}"
        ends = asyncio.create_task(ending.end_of(self._runtime, process), name=name)
        ends.add_done_callback(lambda _: life.wake.set())
        try:
            while not (ends.done() or life.stop_asked.is_set()):
                life.wake.clear()
                await claims.take(self._runtime, life)
                await claims.notify_game(self._runtime, life)
                await life.wake.wait()
            return ends.done() and ends.result() is None
        finally:
            ends.cancel()
            await asyncio.wait({ends})

    async def _restart(self) -> None:
        """Wait the delay and restart the container; finish if it cannot run."""
        life = self._life
        session = self._life.session
        runtime = self._runtime
        passed = runtime.clock.time() - session.since
        delay = restarts.remaining_delay(session.restart_delay, passed)
        if self._in_doubt:  # before the delay, in which the engine notices the end
            await self._unless_stopped(ending.end_forgotten(runtime, session))
        if not await self._unless_stopped(runtime.clock.sleep(delay)):
            return
        self._in_doubt = True
        slots = self._reservations.start_slots
        account = session.spec.identity.account
        if not await self._unless_stopped(slots.acquire(account)):
            return
        try:
            container = None if life.stop_reason else await starting.start_again(runtime, session)
        except AgentError as error:
            await self._refused(error)
            return
        finally:
            slots.release(account)
        if container is None:
            return
        self._refusals = 0
        self._in_doubt = False
        if container.has_lost_process:  # it failed at once
            container = await ending.ended_container(runtime, session)
        if container is None or container.has_lost_process:
            await self._finish(container)
            return
        await life.save(starting.running_again(runtime, session, container))
        await runtime.failpoint("restart.saved")

    async def _refused(self, error: AgentError) -> None:
        """Wait before the next attempt to restart; finish after restarts.TRIES."""
        self._refusals += 1
        may_pass = isinstance(error, PortTakenError | EngineError | DiskFullError)
        if may_pass and self._refusals < restarts.TRIES:
            log.warning("cannot restart yet", error=str(error))
            delay = pause(self._refusals, first=1.0, longest=restarts.LONGEST_DELAY_SECONDS)
            await self._unless_stopped(self._runtime.clock.sleep(delay))
            return
        self._life.note(detail=f"cannot restart: {error}")
        await self._finish(None)

    async def _shut_down(self) -> None:
        life = self._life
        runtime = self._runtime
        process = life.session.process
        if process is None:
            await ending.end_forgotten(runtime, life.session)
        elif await ending.end_process(runtime, life.session, process):
            await self._measure(process, last=True)
        else:
            await self._record_unkillable()
            return
        await runtime.failpoint("stop.killed")
        container = await ending.ended_container(runtime, life.session)
        if container is not None and container.process is not None:
            # It runs, as after a restart whose response was lost: end that process.
            await life.save(life.session.with_next_run(container.process, container.address))
        else:
            await self._finish(container)

    async def _record_unkillable(self) -> None:
        """Record the session as dead; its process keeps its ports and reservation."""
        life = self._life
        now = self._runtime.clock.time()
        life.unkillable = True
        self._runtime.deadlines.clear(life.session.internal_id)
        await life.save(
            life.session.to(
                State.DEAD,
                at=now,
                end_time=now,
                end_reason=life.session.stop_reason,
                detail="its process survives SIGKILL",
                kept_since=deadline_by(self._runtime.clock, 0),
            )
        )

    async def _await_unkillable(self, process: Process) -> None:
        """Repeat SIGKILL until it works, then release the reservation."""
        self._life.unkillable = True
        while not await ending.kill_process(self._runtime, self._life.session, process):
            continue
        self._life.unkillable = False
        await self._measure(process, last=True)
        self._life.release()
        await self._life.save(self._life.session.with_changes(process=None))

    async def _finish(self, container: Container | None) -> None:
        """Record the end, then release the reservation."""
        runtime = self._runtime
        session = ending.ended(self._life.session, container, now=runtime.clock.time())
        session = session.with_changes(kept_since=deadline_by(runtime.clock, 0))
        await runtime.failpoint("end.confirmed")
        runtime.deadlines.clear(session.internal_id)
        await self._life.save(session)
        # After the record: another session may take the ports at once.
        self._life.release()
        await runtime.failpoint("end.saved")

    # -- a start that failed -------------------------------------------------------------------

    async def _undo(self, error: AgentError) -> None:
        """Remove all of a failed start; if that needs retries, report the error first."""
        life = self._life
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                name = container_name(life.session.internal_id)
                await self._runtime.engine.end_forgotten(name)
                await self._runtime.engine.remove(name)
                await self._runtime.records.delete(life.session.internal_id)
            except AgentError as failure:
                log.warning("cannot undo a start yet", error=str(failure))
            except Exception:
                log.exception("cannot undo a start: internal error")
            else:
                break
            life.finish_start(error)
            await back_off.wait()
        self._runtime.deadlines.clear(life.session.internal_id)
        life.release()
        life.mark_removed()
        life.finish_start(error)

    # -- bookkeeping ---------------------------------------------------------------------------

    async def _unless_stopped(self, waited: Coroutine[Any, Any, object]) -> bool:
        """Wait for something (True) or for a request to stop (False)."""
        name = f"unless-stopped-{self._life.session.internal_id}"
        return await first_completed(waited, self._life.stop_asked.wait(), name)

    async def _measure(self, process: Process, *, last: bool = False) -> None:
        """Note the resource usage of the run; the next change records it."""
        used = await self._runtime.usage.read(process, last=last)
        self._life.note(run_usage=self._life.session.run_usage | used)

    async def _step(self, name: str) -> None:
        """Pass a named step of the start, or abort the start if a stop was requested."""
        await self._runtime.failpoint(name)
        if self._life.stop_reason is not None:
            raise SessionStoppedError(self._life.session.internal_id)
