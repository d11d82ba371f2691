"""The limits that the kernel enforces on the control group of a process."""

import os
from collections.abc import Mapping
from pathlib import Path

from agent.domain.host.kernel_limits import UNLIMITED, KernelLimits, differing
from agent.domain.sessions.session import Process
from agent.kernel.control_groups import MOUNTED, UNIFIED, control_groups
from agent.kernel.processes import live_process

_PROC = Path("/proc")
_NO_LIMIT_V1 = 2**62  # Version 1 writes a very large number in place of "max"


def changed_limits(
    wanted: Mapping[Process, KernelLimits],
) -> dict[Process, tuple[str, ...]]:
    """Return, for each process with a changed limit, the names of these limits. Blocks."""
    page_bytes = os.sysconf("SC_PAGE_SIZE")
    changed = {}
    for process, own in wanted.items():
        found = read_limits(process)
        names = () if found is None else differing(own, found, page_bytes=page_bytes)
        if names:
            changed[process] = names
    return changed


def read_limits(process: Process) -> KernelLimits | None:
    """Read the limits of a process's control group; None if it has ended. Blocks."""
    try:
        groups = (_PROC / str(process.pid) / "cgroup").read_text()
    except OSError:
        return None
    found = limits_of(groups)
    return found if live_process(process.pid) == process else None


def limits_of(groups: str, mounted: Path = MOUNTED) -> KernelLimits:
    """Read the limits of a process by its /proc/<pid>/cgroup. Blocks.

    Those of the root group, which is not a container's, are unknown.
    """
    folders = {
        group.controller: group.folders(mounted)[0]
        for group in control_groups(groups)
        if group.path
    }
    unified = folders.get(UNIFIED)
    memory, swap = _memory_of(folders.get("memory"), unified)
    pids = folders.get("pids", unified)
    return KernelLimits(
        memory=memory,
        swap=swap,
        cores=_cores_of(folders.get("cpu"), unified),
        pids=_number(pids / "pids.max") if pids else None,
    )


def _memory_of(v1: Path | None, v2: Path | None) -> tuple[float | None, float | None]:
    """The limits of memory and of swap."""
    if v1 is not None:
        memory = _number(v1 / "memory.limit_in_bytes")
        both = _number(v1 / "memory.memsw.limit_in_bytes")
        if memory is None or both is None:
            return memory, None
        return memory, both if both == UNLIMITED else both - memory
    if v2 is not None:
        return _number(v2 / "memory.max"), _number(v2 / "memory.swap.max")
    return None, None


def _cores_of(v1: Path | None, v2: Path | None) -> float | None:
    if v1 is not None:
        quota = _number(v1 / "cpu.cfs_quota_us")
        period = _number(v1 / "cpu.cfs_period_us")
    elif v2 is not None:
        words = _words(v2 / "cpu.max")
        quota = _parsed(words[0]) if words else None
        period = _parsed(words[-1]) if words else None
    else:
        return None
    if quota is None or not period:
        return None
    return UNLIMITED if quota < 0 or quota == UNLIMITED else quota / period


def _number(path: Path) -> float | None:
    words = _words(path)
    return _parsed(words[0]) if words else None


def _words(path: Path) -> list[str]:
    try:
        return path.read_text("ascii").split()
    except (OSError, ValueError):
        return []


def _parsed(word: str) -> float | None:
    """Parse a limit; None if it is no number."""
    if word == "max":
        return UNLIMITED
    try:
        number = int(word)
    except ValueError:
        return None
    return UNLIMITED if number >= _NO_LIMIT_V1 else number
