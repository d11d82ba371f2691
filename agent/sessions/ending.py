"""The end of a session: stop its process, confirm that with the engine, build the final record."""

import contextlib
from collections.abc import Awaitable, Callable
from signal import SIGKILL

from agent.domain.engine import Container, name_of
from agent.domain.errors import AgentError, ContainerGoneError
from agent.domain.history import signal_of, with_run
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


async def end_process(runtime: Runtime, session: Session, process: Process) -> bool:
    """Send SIGTERM, wait the grace period, send SIGKILL; False if the process survives."""
    await send_signal(runtime, session, process, "SIGTERM")
    if await _ends_within(runtime, process, runtime.settings.stop_grace):
        return True
    log.info("still running after the grace period", session=session.internal_id)
    return await kill_process(runtime, session, process)


async def kill_process(runtime: Runtime, session: Session, process: Process) -> bool:
    """Send SIGKILL, retrying if it cannot be sent; False if the process survives KILL_SECONDS."""
    while True:
        sent = await send_signal(runtime, session, process, "SIGKILL")
        if await _ends_within(runtime, process, KILL_SECONDS):
            return True
        if sent:
            return False


async def _ends_within(runtime: Runtime, process: Process, seconds: float) -> bool:
    name = f"end-{process.pid}"
    return await first_completed(end_of(runtime, process), runtime.clock.sleep(seconds), name)


async def end_of(runtime: Runtime, process: Process) -> None:
    """Wait for the end of a process."""
    await _until_answered(runtime, lambda: runtime.engine.wait_end(process), pid=process.pid)


async def end_forgotten(runtime: Runtime, session: Session) -> None:
    """End a run that a killed engine has forgotten."""
    name = name_of(session)
    await _until_answered(runtime, lambda: runtime.engine.end_forgotten(name), container=name)


async def _until_answered(
    runtime: Runtime, call: Callable[[], Awaitable[None]], **about: object
) -> None:
    while True:
        try:
            return await call()
        except AgentError as error:
            log.warning("cannot follow or end a process", **about, error=str(error))
            await runtime.clock.sleep(RETRY_FIRST_SECONDS)


async def ended_container(runtime: Runtime, session: Session) -> Container | None:
    """Wait until the engine reports the container as ended; None when it is gone.

    Also returns a container that was restarted externally, with its live process, and one still
    reported as running without a process after CONFIRM_SECONDS, whose ports the engine then frees.
    """
    name = name_of(session)
    clock = runtime.clock
    step = CONFIRM_STEP_SECONDS
    lost_since = None
    while True:
        try:
            container = await runtime.engine.inspect(name)
        except ContainerGoneError:
            return None
        except AgentError as error:
            log.warning("cannot confirm the end", session=session.internal_id, error=str(error))
        else:
            if not container.has_lost_process:
                return container
            lost_since = clock.monotonic() if lost_since is None else lost_since
            if clock.monotonic() - lost_since >= CONFIRM_SECONDS:
                with contextlib.suppress(AgentError):  # 28.5 makes up the exit code 0
                    await runtime.engine.kill(name, SIGKILL.name)
                return container
        await clock.sleep(step)
        step = min(step * 2, 1.0)


def failed(session: Session, container: Container | None, *, delay: float, now: float) -> Session:
    """The session after a failed run, to restart after `delay` seconds."""
    end_time = container.end_time if container and container.end_time else now
    exit_code = container.exit_code if container else None
    oom_killed = container is not None and _oom_killed(session, container)
    run = FailedRun(session.start_time, end_time, exit_code, oom_killed, delay)
    return session.to(
        State.RESTARTING,
        at=end_time,
        process=None,
        exit_code=exit_code,
        oom_killed=oom_killed,
        restart_delay=delay,
        failed_runs=with_run(session.failed_runs, run),
    )


def ended(session: Session, container: Container | None, *, now: float) -> Session:
    """The ended session: dead, not exited, if its container is gone or reported as running."""
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
    known = container is not None and not container.is_running
    end_time = container.end_time if container and container.end_time else now
    return session.to(
        State.EXITED if known else State.DEAD,
        at=end_time,
        process=None,
        end_time=end_time,
        exit_code=container.exit_code if container else session.exit_code,
        oom_killed=_oom_killed(session, container) if container else session.oom_killed,
        end_reason=_reason(session, container if known else None),
        detail=detail,
    )


def _reason(session: Session, container: Container | None) -> EndReason:
    if session.stop_reason is not None:
        return session.stop_reason
    if container is None:
        return EndReason.ENGINE_ERROR
    return EndReason.OOM if _oom_killed(session, container) else EndReason.EXITED


def _oom_killed(session: Session, container: Container) -> bool:
    """True if the engine or the kernel reports an OOM kill: each may miss one."""
    killed = signal_of(container.exit_code) == SIGKILL
    return container.oom_killed or (killed and bool(session.run_usage.oom_kills))


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
