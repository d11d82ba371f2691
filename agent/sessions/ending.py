"""The end of a run: stop its process, gather what is known of its end, build the next record."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from signal import SIGKILL
from typing import Self, TypeVar

from agent.domain.containers.ends import Evidence, SeenEnd
from agent.domain.containers.engine import Container, name_of
from agent.domain.errors import AgentError, ContainerGoneError, EngineUnavailableError
from agent.domain.sessions import stopping
from agent.domain.sessions.history import MOST_KILLED
from agent.domain.sessions.session import Process, Session
from agent.domain.sessions.stopping import Member
from agent.init.messages import WAIT_FOR_ALL
from agent.sessions.runtime import Runtime
from tiltyard.ends import StopResult
from tiltyard.runtime.back_off import RETRY_FIRST_SECONDS
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.tasks import first_completed

log = get_logger(__name__)

KILL_SECONDS = 10.0  # Wait after SIGKILL before a process counts as unkillable
LOOK_SECONDS = 0.02  # Between two looks at processes while none is waited for
CONFIRM_SECONDS = 30.0
"""How long the engine may report a container as running after its process is gone."""
CONFIRM_STEP_SECONDS = 0.02

T = TypeVar("T")


class ProcessWatcher:
    """Watches a session's process until its end, in a task of its own.

    The report of init can be read only during the watch: it is gone with the container's process.
    """

    def __init__(self, runtime: Runtime, session: Session, process: Process) -> None:
        self._runtime = runtime
        self._session = session
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
            self._runtime, self._session, lambda: engine.wait_end(process, self._channel)
        )
        return SeenEnd(self._runtime.clock.time(), reported)


async def end_process(
    runtime: Runtime, session: Session, process: Process
) -> tuple[SeenEnd | None, StopResult]:
    """Ask the processes of a run to end; after the grace period, end them by SIGKILL.

    Neither needs the engine. The end is None if the run's first process survives.
    """
    async with ProcessWatcher(runtime, session, process) as watcher:
        stop = _Stop(runtime, session, process)
        grace = runtime.stop_grace(session.spec)
        name = f"stop-{session.internal_id}"
        if not await first_completed(watcher.wait(), stop.run(grace), name):
            await stop.force()
            await _kill(runtime, session, process, watcher)
        return watcher.end, stop.result


class _Stop:
    """Asks the processes of a run to end, in the waves of `agent.domain.sessions.stopping`."""

    def __init__(self, runtime: Runtime, session: Session, first: Process) -> None:
        self._runtime = runtime
        self._session = session
        self._first = first
        self._signalled: list[Process] = []
        self.result = StopResult(session.stop_signal)

    async def run(self, grace: float) -> None:
        """Send the signal to each process that is due; returns after `grace` seconds."""
        clock = self._runtime.clock
        begin = clock.monotonic()
        members = await self._members()
        at_first = members
        if self._first in {member.process for member in members}:
            at_first = ()  # an init of the image signals the others itself, in its own order
        else:
            await self._send(self._first, str(WAIT_FOR_ALL))
        for is_late, limit in ((False, grace * stopping.LATE_SHARE), (True, grace)):
            is_over = False
            while not is_over:
                wave = stopping.next_wave(
                    members, at_first=at_first, signalled=self._signalled, is_late=is_late
                )
                await self._send_wave(wave)
                left = max(0.0, begin + limit - clock.monotonic())
                name = f"wave-{self._session.internal_id}"
                is_over = not await first_completed(
                    self._wave_ends(members), clock.sleep(left), name
                )
                members = await self._members()

    async def force(self) -> None:
        """Note the processes that are left, and whether the signal has reached any."""
        left = await self._members()
        number = stopping.signal_number(self.result.signal) or 0
        asked = [member for member in left if member.process in self._signalled]
        is_held_back = bool(asked) and all(self._misses(member, number) for member in asked)
        log.info("still running after the grace period", session=self._session.internal_id)
        self.result = replace(
            self.result,
            delivered=False if is_held_back else self.result.delivered,
            forced=True,
            killed=tuple(member.name for member in left[:MOST_KILLED]),
        )

    def _misses(self, member: Member, number: int) -> bool:
        """Return whether a signal has not reached a process; of process 1 some are dropped."""
        is_dropped = member.process == self._first and not member.listens_for(number)
        return is_dropped or member.waits_for(number)

    async def _send_wave(self, wave: Sequence[Process]) -> None:
        """Send the signal to processes or, if the agent is not allowed to, through the engine."""
        signal = self.result.signal
        for process in wave:
            self._signalled.append(process)
            if await self._send(process, signal):
                self.result = replace(self.result, delivered=True)
        if wave and not self.result.delivered:
            with contextlib.suppress(AgentError):
                await self._runtime.engine.kill(name_of(self._session), signal)

    async def _wave_ends(self, members: Sequence[Member]) -> None:
        """Wait until all processes that were signalled have ended."""
        runtime = self._runtime
        live = {member.process for member in members}
        waited = [process for process in self._signalled if process in live]
        if not waited:
            await runtime.clock.sleep(LOOK_SECONDS)
        for process in waited:
            wait = partial(runtime.engine.wait_end, process)
            await _until_answered(runtime, self._session, wait)

    async def _members(self) -> Sequence[Member]:
        """The live processes of the program; its first one if they cannot be read."""
        try:
            return await self._runtime.engine.processes(self._first)
        except AgentError as error:
            log.warning(
                "cannot see processes", session=self._session.internal_id, error=str(error)
            )
            return (Member(self._first, 0, "", caught=stopping.ALL_SIGNALS),)

    async def _send(self, process: Process, signal: str) -> bool:
        return await _send_directly(self._runtime, self._session, process, signal)


async def kill_process(runtime: Runtime, session: Session, process: Process) -> bool:
    """Send SIGKILL, retrying if it cannot be sent; False if the process survives KILL_SECONDS."""
    async with ProcessWatcher(runtime, session, process) as watcher:
        await _kill(runtime, session, process, watcher)
        return watcher.end is not None


async def _kill(
    runtime: Runtime, session: Session, process: Process, watcher: ProcessWatcher
) -> None:
    sent = False
    while not sent:
        sent = await _send_signal(runtime, session, process, SIGKILL.name)
        if await watcher.within(KILL_SECONDS):
            return


async def end_forgotten(runtime: Runtime, session: Session) -> None:
    """End a run that a killed engine has forgotten."""
    name = name_of(session)
    await _until_answered(runtime, session, lambda: runtime.engine.end_forgotten(name))


async def _until_answered(
    runtime: Runtime, session: Session, call: Callable[[], Awaitable[T]]
) -> T:
    while True:
        try:
            return await call()
        except AgentError as error:
            internal_id = session.internal_id
            log.warning("cannot follow or end a process", session=internal_id, error=str(error))
            await runtime.clock.sleep(RETRY_FIRST_SECONDS)


async def evidence(runtime: Runtime, session: Session, seen: SeenEnd | None) -> Evidence:
    """Wait until the engine reports the container as ended, and gather what is known of the end.

    The container may also have been restarted by others, with its live process, or still be
    reported as running without a process after CONFIRM_SECONDS; the engine then frees its ports.
    """
    await runtime.end_run(session.made_for)  # before its address has another container
    container, disturbed = await _ended_container(runtime, session)
    if container is not None and container.process is not None:
        await runtime.sources.open(session, container)
    return Evidence(
        seen=None if seen is None else seen.time,
        reported=None if seen is None else seen.reported,
        engine=container,
        disturbed=disturbed,
        usage=session.run_usage,
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


async def _send_signal(runtime: Runtime, session: Session, process: Process, signal: str) -> bool:
    """Send a signal to a process or, if that fails, through the engine; False if both fail."""
    if await _send_directly(runtime, session, process, signal):
        return True
    try:
        await runtime.engine.kill(name_of(session), signal)
    except AgentError as error:
        internal_id = session.internal_id
        log.warning("cannot send a signal", session=internal_id, signal=signal, error=str(error))
        return False
    return True


async def _send_directly(
    runtime: Runtime, session: Session, process: Process, signal: str
) -> bool:
    """Send a signal to a process without the engine; False if that fails."""
    try:
        await runtime.engine.signal_process(process, signal)
    except AgentError as error:
        log.warning(
            "cannot send a signal",
            session=session.internal_id,
            signal=signal,
            process=process.pid,
            error=str(error),
        )
        return False
    return True
