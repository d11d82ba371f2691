"""The task of one session, from its reservation to its sealed log.

Every step is durable before the next begins, and is a failpoint for tests; the first record is
durable at the latest before the container starts. After an engine timeout the outcome is unknown
and is read again, never assumed.

One rule holds for a container that waits for its program, however it was started: the task of its
session hands the program over, once, if the session runs by its record. Otherwise the container is
removed (start), started by a later restart, or ended (stop).
"""

import contextlib
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any

from agent.domain.clock import HostClock
from agent.domain.containers import ends, runs
from agent.domain.containers.ends import Evidence, SeenEnd
from agent.domain.containers.engine import Container, name_of
from agent.domain.errors import (
    AgentError,
    DiskFullError,
    EngineError,
    EngineTimeoutError,
    EngineUnavailableError,
    FirewallFailedError,
    PortTakenError,
    SessionStoppedError,
)
from agent.domain.kept.preparation import Discard
from agent.domain.kept.prepared import Prepared
from agent.domain.sessions import restarts
from agent.domain.sessions.deadlines import deadline_by
from agent.domain.sessions.session import Drain, Process, Session
from agent.metrics.instruments import start_of
from agent.sessions import claims, cleanup, containers, ending, readiness, starting
from agent.sessions.life import Life
from agent.sessions.prepared_containers import PreparedContainers
from agent.sessions.reservations import Reservations
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, State
from tiltyard.runtime.back_off import (
    RETRY_FIRST_SECONDS,
    RETRY_LONGEST_SECONDS,
    BackOff,
    pause,
)
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import contained, first_completed

log = get_logger(__name__)


class Lifecycle:
    """Drives one session: `run_new` or `run_adopted` is its task."""

    def __init__(
        self,
        runtime: Runtime,
        reservations: Reservations,
        life: Life,
        prepared_containers: PreparedContainers,
    ) -> None:
        self._runtime = runtime
        self._prepared_containers = prepared_containers
        self._reservations = reservations
        self._life = life
        self._refusals = 0  # Consecutive restarts that the engine has refused
        self._in_doubt = False  # True while an earlier restart may run, unknown to the engine
        self._waits = False  # True while its container, if it runs, waits for its program
        self._recorded_only: Process | None = None
        """A process that only the record names: it may have ended before this agent began."""

    async def run_new(self, prepared: Prepared | None) -> None:
        """Start the session and drive it until its log is sealed; undo a failed start.

        `prepared`: the container that the session has taken.
        """
        await self._run_each(partial(self._start, prepared), self._drive)

    async def run_adopted(self, container: Container | None) -> None:
        """Continue a session from an earlier run of the agent; `container` as it is now."""
        await self._run_each(partial(self._adopt, container), self._drive)

    async def _run_each(self, *parts: Callable[[], Awaitable[None]]) -> None:
        """Run the parts of the task; after an unexpected error, run the same part again.

        No session is left without its task, and its container always has a session.
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

    async def _start(self, prepared: Prepared | None) -> None:
        """Start the session, unless an earlier try has started it."""
        life = self._life
        metrics = self._runtime.metrics
        if not life.started:
            try:
                with metrics.starting(start_of(life.session), self._runtime.clock):
                    session = await self._started(prepared)
            except AgentError as error:
                await self._undo(error)
                return
            except Exception:
                log.exception("start failed: internal error")
                await self._undo(AgentError())
                return
            life.apply(session)
        if self._reservations.drain.now != Drain():  # may differ from that in session.json
            await life.publish()
        life.finish_start()

    async def _started(self, prepared: Prepared | None) -> Session:
        """Start in the container that the session has taken, or in one of its own."""
        runtime = self._runtime
        life = self._life
        held = self._reservations
        if prepared is not None:
            taken = prepared.container
            try:
                return await starting.start_prepared(
                    runtime, held, life.session, taken, step=self._step
                )
            except starting.UNUSABLE as error:
                log.warning("starting without the prepared container", error=str(error))
                await self._leave(prepared)
        return await starting.start(runtime, held, life.session, self._step)

    async def _leave(self, prepared: Prepared) -> None:
        """Remove the container that the session has taken, and take other ports.

        No other container may execute the program or have its ports before the removal.
        """
        life = self._life
        name = name_of(life.session)
        await self._runtime.engine.end_forgotten(name)
        await self._runtime.end_run(life.session.made_for)
        await self._runtime.engine.remove(name)
        self._runtime.deadlines.clear(life.session.internal_id)
        life.note(prepared="", container="")
        self._prepared_containers.discard(prepared, Discard.UNUSABLE)
        life.note(ports=self._reservations.swap_ports(life.session).ports)

    async def _adopt(self, container: Container | None) -> None:
        life = self._life
        session = self._life.session
        clock = self._runtime.clock
        executes = container is not None and container.executes
        if session.state is State.CREATED:
            if container is None or not executes:  # it is recorded as running before it executes
                await self._undo(SessionStoppedError(session.internal_id))
                return
            await self._runtime.sources.open(session, container)
            await life.save(runs.running(clock, session, container))
            life.finish_start()
        elif not session.state.ended:
            life.apply(runs.as_found(clock, session, container))
            if life.session.process is not None:
                await self._runtime.sources.open(life.session, life.session)
            self._waits = container is not None and container.waits
            self._in_doubt = session.state is State.RESTARTING
            if container is None or container.has_lost_process:
                self._recorded_only = life.session.process
            if self._in_doubt and container is not None and executes:
                # A restart that a full disk kept out of the record.
                await life.save(runs.restarted(clock, life.session, container))
            same_boot = session.boot_id in {"", clock.boot_id}
            if life.session.process is None and not same_boot:
                await self._handle_reboot(container)
        if executes and not session.state.ended:
            await life.publish()  # an earlier agent may have been killed before it did so

    async def _handle_reboot(self, container: Container | None) -> None:
        """Restart a session with `restarts` set; end any other."""
        session = self._life.session
        if not session.restarts:
            self._life.ask_stop(EndReason.HOST_RESTART)
        elif session.state is State.RUNNING:
            found = Evidence(engine=container, usage=session.run_usage)
            end = ends.end_of(session, found, now=self._runtime.clock.time())
            delay = restarts.FIRST_DELAY_SECONDS
            await self._life.save(ends.failed(session, end, delay=delay))

    # -- from state to state -------------------------------------------------------------------

    async def _drive(self) -> None:
        """Drive the session until it has ended and is sealed."""
        life = self._life
        async with containers.renaming(self._runtime, life.session):
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
            await self._runtime.usage.watch(life.session.made_for, process)
        if state is State.SHUTTINGDOWN:
            await self._shut_down()
        elif life.stop_reason is not None:
            await self._measure()
            now = self._runtime.clock.time()
            stopping = life.session.to(State.SHUTTINGDOWN, at=now, stop_reason=life.stop_reason)
            await life.save(stopping)
            await self._runtime.failpoint("stop.recorded")
        elif state is State.RUNNING and self._waits:
            await self._resume()
        elif state is State.RUNNING:
            await self._run()
        else:
            await self._restart()

    async def _run(self) -> None:
        """Wait for the process to end, then restart or finish; return early on a stop."""
        life = self._life
        runtime = self._runtime
        process = self._life.session.process
        seen = None
        if process is not None:
            async with ending.ProcessWatcher(runtime, life.session, process) as watcher:
                if not await self._ends_unless_stopped(watcher):
                    return
                seen = self._as_seen(process, watcher.end)
            await self._measure()
        session = life.session
        found = await ending.evidence(runtime, session, seen)
        container = found.engine
        end = ends.end_of(session, found, now=runtime.clock.time())
        if container is not None and container.process is not None:
            await self._adopt_run(container)
        elif (
            container is not None
            and session.restarts
            and life.stop_reason is None
            and end.exit_code != 0  # an unknown one counts as a failure
        ):
            ran_for = end.time - (session.start_time or 0)
            delay = restarts.next_delay(session.restart_delay, ran_for)
            await life.save(ends.failed(session, end, delay=delay))
        else:
            await self._finish(found)

    async def _adopt_run(self, container: Container) -> None:
        """Continue with a container that others have restarted: it is still of this session."""
        self._waits = container.waits
        if not self._waits:
            session = runs.next_run(self._runtime.clock, self._life.session, container)
            await self._life.save(session)

    async def _ends_unless_stopped(self, watcher: ending.ProcessWatcher) -> bool:
        """Wait for the end of the process (True) or a request to stop.

        Meanwhile do claims, and record when the session is ready; neither waits for the other.
        """
        life = self._life
        runtime = self._runtime
        notifier = claims.Notifier(runtime, life)
        name = f"wake-{life.session.internal_id}"
        watcher.task.add_done_callback(lambda _: life.wake.set())
        async with readiness.watch(runtime, life, watcher.process) as looking:
            while True:
                life.wake.clear()
                await readiness.record(runtime, life, looking)
                if watcher.task.done() or life.stop_asked.is_set():
                    return watcher.end is not None
                await claims.take(runtime, life)
                pause = await notifier.step()
                if pause is None:
                    await life.wake.wait()
                else:
                    await first_completed(life.wake.wait(), runtime.clock.sleep(pause), name)

    def _as_seen(self, process: Process, end: SeenEnd | None) -> SeenEnd | None:
        """The end of a process, without its time if the process may have ended earlier."""
        if end is None or process != self._recorded_only:
            return end
        return replace(end, time=None)

    async def _resume(self) -> None:
        """Hand the program to the waiting container of a running session.

        Another program has started the container, or an earlier agent that was killed before it
        handed the program over.
        """
        life = self._life
        runtime = self._runtime
        try:
            container = await containers.waiting_container(runtime, life.session)
            if container.process is None:
                self._waits = False  # it has ended meanwhile
                return
            await self._begin_run(container, runs.next_run)
        except SessionStoppedError:
            return
        except (EngineUnavailableError, EngineTimeoutError) as error:
            log.warning("cannot resume yet", session=life.session.internal_id, error=str(error))
            await self._unless_stopped(runtime.clock.sleep(RETRY_FIRST_SECONDS))
        except AgentError as error:
            log.warning("cannot resume", session=life.session.internal_id, error=str(error))
            await self._give_up_run()
            await self._unless_stopped(runtime.clock.sleep(RETRY_FIRST_SECONDS))

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
            if life.stop_reason is None:
                await runtime.records.repair_channel(session)
                container = await containers.start_container(runtime, session)
                await self._begin_run(container, runs.restarted)
        except SessionStoppedError:
            return
        except (EngineUnavailableError, EngineTimeoutError, FirewallFailedError) as error:
            log.warning("cannot restart yet", session=session.internal_id, error=str(error))
        except AgentError as error:
            await self._refused(error)
        finally:
            slots.release(account)

    async def _begin_run(
        self, container: Container, with_run: Callable[[HostClock, Session, Container], Session]
    ) -> None:
        """Record a run of a started container, publish session.json, hand the program over.

        A container that does not wait gets no program: it has its program already, or an older
        agent has made it without an init that waits. Raises SessionStoppedError
        before the hand-over if a stop was requested; the stop then ends the container.
        """
        life = self._life
        runtime = self._runtime
        await self._step("restart.waiting")
        session = with_run(runtime.clock, life.session, container)
        await life.record(session)
        await life.publish()
        await self._step("restart.saved")
        if container.waits:
            await starting.hand_over(runtime, session, container)
        await runtime.failpoint("restart.handed")
        self._waits = False
        self._in_doubt = False
        self._refusals = 0
        life.apply(session)

    async def _give_up_run(self) -> None:
        """End a container that could not be handed its program; its end is then handled."""
        self._waits = False
        with contextlib.suppress(AgentError):
            await self._runtime.engine.kill(name_of(self._life.session), "SIGKILL")

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
        await self._give_up_run()
        await self._runtime.end_run(self._life.session.made_for)
        await self._finish(Evidence())

    async def _shut_down(self) -> None:
        life = self._life
        runtime = self._runtime
        process = life.session.process
        seen = None
        if process is None:
            await ending.end_forgotten(runtime, life.session)
        else:
            end, how = await ending.end_process(runtime, life.session, process)
            life.note(stop=how)
            seen = self._as_seen(process, end)
            if seen is None:
                await self._record_unkillable()
                return
            await self._measure()
        await runtime.failpoint("stop.killed")
        found = await ending.evidence(runtime, life.session, seen)
        container = found.engine
        if container is not None and container.process is not None:
            # It runs, as after a restart whose response was lost: end that process.
            await life.save(life.session.with_next_run(container.process, container))
        else:
            await self._finish(found)

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
                detail="SIGKILL did not end its process; the host keeps its ports until it ends",
                kept_since=deadline_by(self._runtime.clock, 0),
            )
        )

    async def _await_unkillable(self, process: Process) -> None:
        """Repeat SIGKILL until it works, then release the reservation."""
        self._life.unkillable = True
        while not await ending.kill_process(self._runtime, self._life.session, process):
            continue
        self._life.unkillable = False
        await self._measure()
        await self._runtime.end_run(self._life.session.made_for)
        self._life.release()
        await self._life.save(self._life.session.with_changes(process=None))

    async def _finish(self, found: Evidence) -> None:
        """Record the end, then release the reservation."""
        runtime = self._runtime
        session = ends.ended(self._life.session, found, now=runtime.clock.time())
        session = session.with_changes(kept_since=deadline_by(runtime.clock, 0))
        await runtime.failpoint("end.confirmed")
        runtime.deadlines.clear(session.internal_id)
        await self._life.save(session)
        # After the record: another session may take the ports at once.
        self._life.release()
        await runtime.failpoint("end.saved")

    # -- a start that failed -------------------------------------------------------------------

    async def _undo(self, error: AgentError) -> None:
        """Remove all parts of a failed start; if that needs retries, report the error first."""
        life = self._life
        back_off = BackOff(self._runtime.clock)
        while True:
            try:
                name = name_of(life.session)
                await self._runtime.engine.end_forgotten(name)
                await self._runtime.end_run(life.session.made_for)
                await self._runtime.engine.remove(name)
                await self._runtime.records.delete(life.session)
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

    async def _measure(self) -> None:
        """Note the resource usage of the run; the next change records it."""
        used = await self._runtime.usage.read(self._life.session.made_for)
        self._life.note(run_usage=self._life.session.run_usage | used)

    async def _step(self, name: str) -> None:
        """Pass a named step of a start or restart, or abort it if a stop was requested."""
        await self._runtime.failpoint(name)
        if self._life.stop_reason is not None:
            raise SessionStoppedError(self._life.session.internal_id)
