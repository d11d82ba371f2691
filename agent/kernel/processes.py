"""Processes of this host: whether they are alive, and when they end."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

from agent.domain.session import Process

_PROC = Path("/proc")
_DEAD = frozenset("ZXx")
_STATE_FIELD = 3
_START_FIELD = 22
"""Fields of /proc/<pid>/stat, counted from 1 as proc(5) does; the second holds the name."""


def live_process(pid: int) -> Process | None:
    """The process with this id; None when there is none or it is a zombie. Reads /proc."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = stat.rpartition(")")[2].split()  # a name may hold anything, brackets included
    if fields[_STATE_FIELD - 3] in _DEAD:
        return None
    return Process(pid, int(fields[_START_FIELD - 3]))


async def wait_end(process: Process, read: Callable[[int], Awaitable[Process | None]]) -> None:
    """Return when the process is gone. `read` is `live_process` off the event loop."""
    loop, ended = asyncio.get_running_loop(), asyncio.Event()
    async with _held(process, read) as descriptor:
        if descriptor is None:
            return
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)


async def send_signal(
    process: Process, number: int, read: Callable[[int], Awaitable[Process | None]]
) -> None:
    """Send a signal; nothing happens when the process is gone. Raises PermissionError."""
    async with _held(process, read) as descriptor:
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)


@contextlib.asynccontextmanager
async def _held(
    process: Process, read: Callable[[int], Awaitable[Process | None]]
) -> AsyncIterator[int | None]:
    """A descriptor of this process, not of a later one with its id; None when it is gone.

    What is read once the descriptor is open is about it, or it has ended and the descriptor
    says so.
    """
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if await read(process.pid) == process else None
    finally:
        os.close(descriptor)
