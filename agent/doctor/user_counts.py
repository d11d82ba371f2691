"""The use of per-user kernel limits by the users of sessions. Reads /proc; blocks."""

import contextlib
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from agent.doctor.facts import UserCount
from agent.domain.host.kernel_needs import INOTIFY_INSTANCES, KEYS, PENDING_SIGNALS

_PROC = Path("/proc")
_USER = re.compile(r"(?m)^Uid:\s+\d+\s+(\d+)")  # the effective one
_QUEUED = re.compile(r"(?m)^SigQ:\s+(\d+)/(\d+)")
_TIMER = re.compile(r"(?m)^ID:")
_KEYS = re.compile(r"(?m)^\s*(\d+):\s+\d+ \d+/\d+ (\d+)/(\d+) ")
"""A line of key-users: a user, the number of its keys, and the limit of that."""


class _Program(NamedTuple):
    user: int
    watchers: int  # inotify instances
    timers: int
    queued: int  # timers and queued signals of its user, and the limit of both
    max_queued: int


def user_counts(
    sessions: Mapping[str, Iterable[int]], *, proc: Path = _PROC
) -> tuple[UserCount, ...]:
    """Read the counts of each user that runs a program of a session.

    `sessions` has the process ids of each session by its internal id. Of the other programs, those
    that this user may not look at are left out. Raises OSError, such as PermissionError if it may
    not look at those of sessions.
    """
    of_sessions = {
        session: list(_running(proc / str(pid) for pid in pids))
        for session, pids in sessions.items()
    }
    users = {program.user for each in of_sessions.values() for program in each}
    running = list(_running(proc.glob("[0-9]*"), passes_over=PermissionError)) if users else []
    most_watchers = int((proc / "sys/fs/inotify/max_user_instances").read_text())
    counts = [
        count
        for user in sorted(users)
        for count in _counts(user, running, of_sessions, most_watchers)
    ]
    return (*counts, *_keys(proc))


def _keys(proc: Path) -> Iterator[UserCount]:
    """Read the keys of each user: with userns-remap, those of containers are of its root."""
    for user, used, limit in _KEYS.findall((proc / "key-users").read_text()):
        yield UserCount(int(user), KEYS, int(used), int(limit))


def _counts(
    user: int,
    running: Iterable[_Program],
    of_sessions: Mapping[str, Iterable[_Program]],
    most_watchers: int,
) -> Iterator[UserCount]:
    own = [program for program in running if program.user == user]
    if not own:  # they have ended since those of sessions were read
        return
    watchers = _most(user, of_sessions, lambda program: program.watchers)
    used = sum(program.watchers for program in own)
    yield UserCount(user, INOTIFY_INSTANCES, used, most_watchers, *watchers)
    timers = _most(user, of_sessions, lambda program: program.timers)
    queued = max(program.queued for program in own)
    limit = min(program.max_queued for program in own)
    yield UserCount(user, PENDING_SIGNALS, queued, limit, *timers)


def _most(
    user: int,
    of_sessions: Mapping[str, Iterable[_Program]],
    number: Callable[[_Program], int],
) -> tuple[str, int]:
    """The session whose programs of this user hold most, and how many."""
    held = Counter[str]()
    for session, programs in of_sessions.items():
        held[session] = sum(number(each) for each in programs if each.user == user)
    return held.most_common(1)[0]


def _running(
    folders: Iterable[Path], *, passes_over: type[OSError] = ProcessLookupError
) -> Iterator[_Program]:
    """Read processes by their folders in /proc, without those that have ended."""
    for folder in folders:
        with contextlib.suppress(FileNotFoundError, ProcessLookupError, passes_over):
            yield _program(folder)


def _program(folder: Path) -> _Program:
    """Read a process. Raises OSError, such as for one that has ended, and ValueError."""
    status = (folder / "status").read_text(errors="replace")
    user = _USER.search(status)
    queued = _QUEUED.search(status)
    if user is None or queued is None:
        raise ValueError(f"{folder / 'status'} names neither its user nor its signals")
    return _Program(
        user=int(user[1]),
        watchers=Counter(_kinds(folder / "fd"))["anon_inode:inotify"],
        timers=len(_TIMER.findall((folder / "timers").read_text())),
        queued=int(queued[1]),
        max_queued=int(queued[2]),
    )


def _kinds(descriptors: Path) -> Iterator[str]:
    for entry in descriptors.iterdir():
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            yield str(entry.readlink())
