"""The first process of a container from the agent's side: its state, a hand-over, its reports.

The name of the process shows what it does, and only itself can change that. Its reports end waits
early and say why a program was not executed.
"""

import asyncio
import contextlib
import errno
import os
from collections.abc import Awaitable, Iterator, Sequence
from pathlib import Path

from agent.docker.errors import short
from agent.domain.containers.engine import EngineLoad, InitState, ReportedEnd, Start
from agent.domain.errors import AgentError, EngineError, HandOverFailedError, ImageCannotRunError
from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import Member
from agent.init.channel import KeptReports, ReportReader, opened_reports, send
from agent.init.messages import Cause, Ended, Executed, HandOverError, Refused, encode
from agent.kernel.processes import (
    cpu_seconds,
    live_process,
    members_of,
    name_of,
    parent_of,
)

BEGIN_SECONDS = 10.0  # An init that takes longer to wait is broken
SEND_SECONDS = 5.0  # A hand-over of 2 MiB takes 0.1 s on a busy host
EXECUTED_SECONDS = 1.0  # A program that takes longer to be executed is slow, not missing
_MAX_SHOWN = 200  # Characters of a program in a message, since a caller may name it
STEP_SECONDS = 0.05
"""Interval at which the state is read while no report arrives."""

_STATES = {
    "tiltyard-init": InitState.BEGINNING,
    "tiltyard-wait": InitState.WAITING,
    "tiltyard-hand": InitState.HANDED,
    "tiltyard-run": InitState.RUNNING,
}
_RUNTIME = "runc:["  # How the name of the process begins that becomes the init


def init_state(process: Process) -> InitState | None:
    """Return the state of a first process; None if it has ended."""
    name = name_of(process)
    if name is None:
        return None
    if name.startswith(_RUNTIME):
        return InitState.BEGINNING
    return _STATES.get(name, InitState.UNKNOWN)


def first_process(pid: int) -> tuple[Process | None, InitState]:
    """The first process of a container and its state; None if it has ended."""
    process = live_process(pid)
    state = None if process is None else init_state(process)
    return (None, InitState.UNKNOWN) if state is None else (process, state)


def members_of_program(first: Process) -> list[Member]:
    """The live processes of a container but for our init, which counts while it has no program.

    Raises OSError.
    """
    members = members_of(first)
    state = init_state(first)
    others = [member for member in members if member.process != first]
    if state in {None, InitState.RUNNING} or (others and state in _STATES.values()):
        return others
    return members


def load_of(daemon: int | None, processes: Sequence[Process]) -> EngineLoad:
    """Read the processor time of a daemon and of shims. Blocks."""
    total = None if daemon is None else cpu_seconds(daemon)
    shims = {process: parent_of(process) for process in processes}
    found = {process: cpu_seconds(shim) for process, shim in shims.items() if shim is not None}
    relays = {process: seconds for process, seconds in found.items() if seconds is not None}
    return EngineLoad(total, relays)


@contextlib.contextmanager
def reports_of(channel: Path) -> Iterator[ReportReader]:
    """Open the reports of an init that is about to be started. Raises EngineError."""
    with contextlib.ExitStack() as stack:
        try:
            reports = stack.enter_context(opened_reports(channel))
        except OSError as error:
            raise EngineError("start", f"its channel cannot be opened: {error}") from error
        yield reports


async def until_begun(process: Process, reports: ReportReader) -> InitState | None:
    """Wait until an init waits, or does something else; None if it has ended.

    Raises EngineError if it does neither within BEGIN_SECONDS.
    """
    loop = asyncio.get_running_loop()
    give_up = loop.time() + BEGIN_SECONDS
    while (found := init_state(process)) is InitState.BEGINNING:
        if loop.time() > give_up:
            raise EngineError("start", f"its init does not wait after {BEGIN_SECONDS:g} s")
        await reports.wait(STEP_SECONDS)
        reports.all_reports()
    return found


async def hand_over(process: Process | None, channel: Path, start: Start) -> None:
    """Make an init that waits execute a program; returns after EXECUTED_SECONDS without an answer.

    Raises:
        ImageCannotRunError: The program cannot be executed.
        HandOverFailedError: The init does not wait, or ended before it executed the program.
    """
    if process is None:
        raise _failed("it has ended")
    try:
        message = encode(start.program, start.env, in_place=start.in_place)
        with opened_reports(channel) as reports:
            if init_state(process) is not InitState.WAITING:
                raise _failed("it does not wait")
            reports.all_reports()  # they are of what it did before
            has_read = await _sent(channel, message)
            await _until_executed(process, reports, start)
    except (HandOverError, OSError) as error:
        raise _failed(str(error)) from error
    if not has_read:
        raise _failed("it did not read all of it")


async def reported_end(
    channel: Path, end: Awaitable[None], kept: KeptReports
) -> ReportedEnd | None:
    """Wait for the end of an init; return what it has reported of its program.

    `kept`: has its reports since the hand-over, if that was lately.
    """
    with contextlib.ExitStack() as stack:
        reports = None
        with contextlib.suppress(OSError):  # it says nothing, then
            reports = stack.enter_context(opened_reports(channel))
        kept.release(channel)
        await end
        found = [] if reports is None else reports.all_reports()
    ends = [report for report in found if isinstance(report, Ended)]
    if not ends:
        return None
    last = ends[-1]
    return ReportedEnd(last.status, last.time_ns / 1e9, last.limits_met)


async def _sent(channel: Path, message: bytes) -> bool:
    """Send a hand-over; False if the init left before its end, which its reports may explain."""
    try:
        await send(channel, message, SEND_SECONDS)
    except BrokenPipeError:
        return False
    except TimeoutError as error:
        raise _failed(f"it did not read all of it within {SEND_SECONDS:g} s") from error
    return True


async def _until_executed(process: Process, reports: ReportReader, start: Start) -> None:
    loop = asyncio.get_running_loop()
    give_up = loop.time() + EXECUTED_SECONDS
    while loop.time() < give_up:
        await reports.wait(STEP_SECONDS)
        if _says_executed(reports, start):
            return
        found = init_state(process)
        if found is InitState.RUNNING or (start.in_place and found is InitState.UNKNOWN):
            return
        if found is None:  # it may have reported since
            if _says_executed(reports, start):
                return
            raise _failed("it has ended")


def _says_executed(reports: ReportReader, start: Start) -> bool:
    """Read reports up to the answer to a hand-over; False if there is none yet.

    Later ones are left for `reported_end`. Raises the error of a refusal.
    """
    for report in reports.look():
        if isinstance(report, Refused):
            raise error_of_refusal(report, start.program[0])
        if isinstance(report, Executed):
            return True
    return False


_NOT_EXECUTED = {
    Cause.MISSING: "{program}: no such file",
    Cause.INTERPRETER: "{program}: its interpreter or dynamic loader is missing",
    Cause.PERMISSION: "{program}: not executable by the image's user",
    Cause.ARCHITECTURE: "{program}: it is for another processor architecture",
    Cause.LENGTH: "{program}: its arguments and environment are too long",
    Cause.OTHER: "{program}: {error}",
}
"""Causes that are those of the image or of the request; others are the host's."""


def error_of_refusal(refusal: Refused, program: str) -> AgentError:
    """Convert an init's report that it could not execute a program."""
    error = os.strerror(refusal.errno)
    text = _NOT_EXECUTED.get(refusal.cause)
    if text is None or refusal.errno == errno.EINTR:  # it was stopped before
        return _failed(f"{refusal.cause.value}: {error}")
    return ImageCannotRunError(text.format(program=short(program, _MAX_SHOWN), error=error))


def _failed(cause: str) -> HandOverFailedError:
    return HandOverFailedError("hand over the program to the container's init", cause)
