"""The end of a run: stop its process, gather what is known of its end, build the next record."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from signal import SIGKILL
from typing import Self, TypeVar

from agent.domain.ends import End, Evidence, end_of_run
from agent.domain.engine import Container, ReportedEnd, name_of
from agent.domain.errors import AgentError, ContainerGoneError, EngineUnavailableError
from agent.domain.history import with_run
from agent.domain.session import Process, Session
from agent.sessions.runtime import Runtime
from tiltyard.contract import EndReason, FailedRun, State
from tiltyard.runtime.back_off import RETRY_FIRST_SECONDS
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

KILL_SECONDS = 10.0  # Wait after SIGKILL before a process counts as unkillable
CONFIRM_SECONDS = 30.0
"""How long the engine may report a container as running after its process is gone."""
CONFIRM_STEP_SECONDS = 0.02

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class SeenEnd:
    """The end of a process that this agent followed, and what its init reported.

    `time` is Unix time, None if the process may have ended earlier.
    """

    time: float | None
    reported: ReportedEnd | None = None


class Following:
    """Follows a session's process from now to its end, in a task of its own.

    Only while it does so can init's report be read: it is gone with the container's process.
    """

    def __init__(self, runtime: Runtime, session: Session, process: Process) -> None:
        self._runtime = runtime
        self._channel = runtime.records.channel(session)
        self.process = process
        self.task = asyncio.create_task(self._follow(), name=f"end-{session.internal_id}")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        self.task.cancel()
        await asyncio.wait({self.task})

    @property
    def end(self) -> SeenEnd | None:
        """The end; None while the process lives."""
        return self.task.result() if self.task.done() else None

    async def wait(self) -> None:
        """Wait for the end of the process."""
        await asyncio.shield(self.task)

    async def within(self, seconds: float) -> bool:
        """Wait for the end of the process; False if it still lives after `seconds`."""
        name = f"{self.task.get_name()}-within"
        return await first_completed(self.wait(), self._runtime.clock.sleep(seconds), name)

    async def _follow(self) -> SeenEnd:
        process = self.process
        engine = self._runtime.engine
        reported = await _until_answered(
            self._runtime, lambda: engine.wait_end(process, self._channel), pid=process.pid
        )
        return SeenEnd(self._runtime.clock.time(), reported)


async def end_process(runtime: Runtime, session: Session, process: Process) -> SeenEnd | None:
    """Send SIGTERM, wait the grace period, send SIGKILL; None if the process survives."""
    async with Following(runtime, session, process) as following:
        await send_signal(runtime, session, process, "SIGTERM")
        if not await following.within(runtime.settings.stop_grace):
            log.info("still running after the grace period", session=session.internal_id)
            await _kill(runtime, session, process, following)
        return following.end


async def kill_process(runtime: Runtime, session: Session, process: Process) -> bool:
    """Send SIGKILL, retrying if it cannot be sent; False if the process survives KILL_SECONDS."""
    async with Following(runtime, session, process) as following:
        await _kill(runtime, session, process, following)
        return following.end is not None


async def _kill(
    runtime: Runtime, session: Session, process: Process, following: Following
) -> None:
    sent = False
    while not sent:
        sent = await send_signal(runtime, session, process, "SIGKILL")
        if await following.within(KILL_SECONDS):
            return


async def end_forgotten(runtime: Runtime, session: Session) -> None:
    """End a run that a killed engine has forgotten."""
    name = name_of(session)
    await _until_answered(runtime, lambda: runtime.engine.end_forgotten(name), container=name)


async def _until_answered(
    runtime: Runtime, call: Callable[[], Awaitable[T]], **about: object
) -> T:
    while True:
        try:
            return await call()
        except AgentError as error:
            log.warning("cannot follow or end a process", **about, error=str(error))
            await runtime.clock.sleep(RETRY_FIRST_SECONDS)


async def evidence(runtime: Runtime, session: Session, seen: SeenEnd | None) -> Evidence:
    """Wait until the engine reports the container as ended, and gather what is known of the end.

    The container may also have been restarted by others, with its live process, or still be
    reported as running without a process after CONFIRM_SECONDS; the engine then frees its ports.
    """
    container, disturbed = await _ended_container(runtime, session)
    return Evidence(
        seen=None if seen is None else seen.time,
        reported=None if seen is None else seen.reported,
        engine=container,
        disturbed=disturbed,
        oom_kills=session.run_usage.oom_kills or 0,
    )


async def _ended_container(runtime: Runtime, session: Session) -> tuple[Container | None, bool]:
    """The container, None when it is gone; and whether the engine was away meanwhile."""
    name = name_of(session)
    clock = runtime.clock
    step = CONFIRM_STEP_SECONDS
    lost_since = None
    disturbed = False
    while True:
        try:
            container = await runtime.engine.inspect(name)
        except ContainerGoneError:
            return None, disturbed
        except AgentError as error:
            disturbed = disturbed or isinstance(error, EngineUnavailableError)
            log.warning("cannot confirm the end", session=session.internal_id, error=str(error))
        else:
            if not container.has_lost_process:
                return container, disturbed
            lost_since = clock.monotonic() if lost_since is None else lost_since
            if clock.monotonic() - lost_since >= CONFIRM_SECONDS:
                with contextlib.suppress(AgentError):  # 28.5 makes up the exit code 0
                    await runtime.engine.kill(name, SIGKILL.name)
                return container, disturbed
        await clock.sleep(step)
        step = min(step * 2, 1.0)


def end_of(session: Session, evidence: Evidence, *, now: float) -> End:
    """The end of the session's run."""
    since = session.create_time if session.start_time is None else session.start_time
    return end_of_run(evidence, since=since, now=now)


def failed(session: Session, end: End, *, delay: float) -> Session:
    """The session after a failed run, to restart after `delay` seconds."""
    run = FailedRun(session.start_time, end.time, end.exit_code, end.oom_killed, delay)
    return session.to(
        State.RESTARTING,
        at=end.time,
        process=None,
        exit_code=end.exit_code,
        oom_killed=end.oom_killed,
        restart_delay=delay,
        failed_runs=with_run(session.failed_runs, run),
    )


def ended(session: Session, found: Evidence, *, now: float) -> Session:
    """The ended session: dead, not exited, unless the engine confirms the end of its container."""
    end = end_of(session, found, now=now)
    is_known = found.engine is not None or found.reported is not None
    return session.to(
        State.EXITED if found.is_confirmed else State.DEAD,
        at=end.time,
        process=None,
        end_time=end.time,
        exit_code=end.exit_code if is_known else session.exit_code,
        oom_killed=end.oom_killed if is_known else session.oom_killed,
        end_reason=_reason(session, end, is_confirmed=found.is_confirmed),
        detail=_detail(session, found.engine),
    )


def _detail(session: Session, container: Container | None) -> str:
    if container is None:
        detail = session.detail or "its container vanished"
    elif container.is_running:
        detail = "the engine lists it as running, but its process has ended"
    else:
        detail = container.error
    if session.stop_reason is EndReason.DISK:
        detail = detail or "it exceeded its disk limit"
    if session.stop_reason is EndReason.LOG:
        detail = detail or (
            "it printed more than session_log_lines or session_log_bytes allow, or most of an"
            " account beyond its share of host_log_lines or host_log_bytes"
        )
    return detail


def _reason(session: Session, end: End, *, is_confirmed: bool) -> EndReason:
    if session.stop_reason is not None:
        return session.stop_reason
    if not is_confirmed:
        return EndReason.ENGINE_ERROR
    return EndReason.OOM if end.oom_killed else EndReason.EXITED


async def send_signal(runtime: Runtime, session: Session, process: Process, signal: str) -> bool:
    """Send a signal through the engine or, if that fails, to the process; False if both fail."""
    try:
        await runtime.engine.kill(name_of(session), signal)
    except AgentError as error:
        log.warning(
            "cannot send a signal", session=session.internal_id, signal=signal, error=str(error)
        )
    else:
        return True
    try:
        await runtime.engine.signal_process(process, signal)
    except AgentError as error:
        log.warning("cannot send a signal", process=process.pid, signal=signal, error=str(error))
        return False
    return True
