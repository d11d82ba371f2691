"""Processes of this host: liveness, end and signals."""

import asyncio
import contextlib
import os
import re
import signal
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from agent.domain.sessions.session import Process
from agent.domain.sessions.stopping import Member
from agent.kernel.control_groups import MOUNTED, control_groups

UNLIMITED = 2**64 - 1  # RLIM_INFINITY of the kernel

_PROC = Path("/proc")
_CONTAINER_ID = re.compile("[0-9a-f]{64}")
_DEAD = frozenset("ZXx")
_MEMBERS = "cgroup.procs"  # The file that lists the processes of a control group
_LISTINGS = 10  # Most readings of a control group whose processes end meanwhile
_MASKS = re.compile(r"(?m)^(SigPnd|ShdPnd|SigBlk|SigIgn|SigCgt):\s*([0-9a-f]+)$")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
_STATE_FIELD = 3
_PARENT_FIELD = 4
_THREADS_FIELD = 20
_USER_FIELD = 14
_SYSTEM_FIELD = 15
_START_FIELD = 22
"""Fields of /proc/<pid>/stat, counted from 1 as proc(5) does; the second holds the name."""


def live_process(pid: int) -> Process | None:
    """The process with this id; None if there is none or it is a zombie.

    Reads /proc/<pid>/stat, which the kernel answers from memory without waiting for the process:
    it takes less time than handing the read to a thread.
    """
    _, fields = _status(pid)
    if not fields or _has_ended(fields):
        return None
    return Process(pid, int(fields[_START_FIELD - 3]))


def name_of(process: Process) -> str | None:
    """The name (`comm`) of a process, read like `live_process`; None if it is gone or a zombie."""
    name, fields = _status(process.pid)
    if not _is(process, fields) or _has_ended(fields):
        return None
    return name


def parent_of(process: Process) -> int | None:
    """The parent of a process; None if the process is gone. Reads /proc."""
    _, fields = _status(process.pid)
    return int(fields[_PARENT_FIELD - 3]) if _is(process, fields) else None


def cpu_seconds(pid: int) -> float | None:
    """Processor seconds of a process and its threads; None if it is gone. Reads /proc."""
    _, fields = _status(pid)
    if not fields:
        return None
    return (int(fields[_USER_FIELD - 3]) + int(fields[_SYSTEM_FIELD - 3])) / _TICKS_PER_SECOND


def resource_limit(pid: int, name: str) -> tuple[int, int]:
    """The soft and the hard limit of a process, by its name in /proc/<pid>/limits. Reads /proc.

    Raises OSError, and ValueError if there is no such limit.
    """
    text = (_PROC / str(pid) / "limits").read_text("ascii")
    found = re.search(rf"(?m)^{re.escape(name)} +(\S+) +(\S+)", text)
    if found is None:
        raise ValueError(f"{_PROC}/{pid}/limits does not name {name!r}")
    soft, hard = (UNLIMITED if value == "unlimited" else int(value) for value in found.groups())
    return soft, hard


def _status(pid: int) -> tuple[str, list[str]]:
    """The name in /proc/<pid>/stat and its fields from the third; empty without such a process."""
    try:
        stat = (_PROC / str(pid) / "stat").read_text(errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return "", []
    before, _, fields = stat.rpartition(")")  # a name may contain anything, even parentheses
    return before.partition("(")[2], fields.split()


def _has_ended(fields: Sequence[str]) -> bool:
    """True for a zombie, but not for a process whose first thread has ended before others."""
    return fields[_STATE_FIELD - 3] in _DEAD and int(fields[_THREADS_FIELD - 3]) <= 1


def _is(process: Process, fields: Sequence[str]) -> bool:
    """True unless the id has become that of another process, or of none."""
    return bool(fields) and int(fields[_START_FIELD - 3]) == process.start_ticks


def processes_of(container: str) -> list[Process]:
    """The processes in the cgroup of a container with this id, and its shim. Reads /proc.

    Raises ValueError unless it is a whole id, which no other name contains.
    """
    if not _CONTAINER_ID.fullmatch(container):
        raise ValueError(f"{container!r} is no container's id")
    found = []
    for folder in _PROC.glob("[0-9]*"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            process = live_process(int(folder.name))  # first: its id may be another's soon
            program, *options = (folder / "cmdline").read_text(errors="replace").split("\0")
            is_shim = "containerd-shim" in program and container in options
            groups = (folder / "cgroup").read_text(errors="replace")
            if process and (is_shim or container in groups):
                found.append(process)
    return found


def members_of(first: Process, mounted: Path = MOUNTED) -> list[Member]:
    """The live processes of a container: its first one and the descendants of that. Reads /proc.

    Others in its control group, which the engine executed there, are left out. `mounted`: where
    control groups are mounted. Raises OSError.
    """
    if live_process(first.pid) != first:
        return []
    for _ in range(_LISTINGS):
        try:
            own = (_PROC / str(first.pid) / "cgroup").read_text()
        except (FileNotFoundError, ProcessLookupError):
            return []
        folder = folder_of(own, mounted)
        pids = [int(pid) for pid in (folder / _MEMBERS).read_text().split()]
        members = [member for member in map(_member, pids) if member is not None]
        if len(members) == len(pids):
            break  # else a process that has ended may have left children, which are not listed
    return _below(first, members)


def _below(first: Process, members: Iterable[Member]) -> list[Member]:
    """A process and its descendants, the oldest first; empty if it has ended."""
    by_age = sorted(members, key=lambda member: member.process.start_ticks)
    below = {member.process.pid for member in by_age if member.process == first}
    has_grown = True
    while has_grown:
        more = {member.process.pid for member in by_age if member.parent in below} - below
        below |= more
        has_grown = bool(more)
    return [member for member in by_age if member.process.pid in below]


def folder_of(groups: str, mounted: Path) -> Path:
    """Find the folder of a process's control group by its /proc/<pid>/cgroup; any one will do.

    Raises FileNotFoundError.
    """
    for group in sorted(control_groups(groups), key=lambda group: not group.path):  # root last
        for folder in group.folders(mounted):
            if (folder / _MEMBERS).exists():
                return folder
    raise FileNotFoundError(f"no control group of it is mounted at {mounted}")


def _masks(folder: Path) -> dict[str, int]:
    """The sets of signals of a process or a thread, by their names in its status."""
    status = (folder / "status").read_text(errors="replace")
    return {name: int(mask, 16) for name, mask in _MASKS.findall(status)}


def _member(pid: int) -> Member | None:
    """A live process; None if it has ended."""
    name, fields = _status(pid)
    if not fields or _has_ended(fields):
        return None
    folder = _PROC / str(pid)
    try:
        masks = _masks(folder)
        blocked = masks.get("SigBlk", 0)
        if blocked:  # seldom, and a signal may go to any thread that does not block it
            for thread in (folder / "task").iterdir():
                blocked &= _masks(thread).get("SigBlk", 0)
    except (FileNotFoundError, ProcessLookupError):
        return None
    return Member(
        process=Process(pid, int(fields[_START_FIELD - 3])),
        parent=int(fields[_PARENT_FIELD - 3]),
        name=name,
        caught=masks.get("SigCgt", 0),
        ignored=masks.get("SigIgn", 0),
        blocked=blocked,
        pending=masks.get("SigPnd", 0) | masks.get("ShdPnd", 0),
    )


async def wait_end(process: Process) -> None:
    """Wait until the process is gone."""
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    with _held(process) as descriptor:
        if descriptor is None:
            return
        loop.add_reader(descriptor, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(descriptor)


def send_signal(process: Process, number: int) -> None:
    """Send a signal; no-op if the process is gone. Raises PermissionError."""
    with _held(process) as descriptor:
        if descriptor is not None:
            with contextlib.suppress(ProcessLookupError):
                signal.pidfd_send_signal(descriptor, number)


@contextlib.contextmanager
def _held(process: Process) -> Iterator[int | None]:
    """Open a pidfd of this process, not of a later one with its id; None if it is gone."""
    try:
        descriptor = os.pidfd_open(process.pid)
    except ProcessLookupError:
        yield None
        return
    try:
        yield descriptor if live_process(process.pid) == process else None
    finally:
        os.close(descriptor)
