"""Resource usage of sessions, from the kernel's control groups.

The engine removes a run's control group a moment after the run ends. So each group is read as soon
as it is known, then periodically by one task, and once more when the run's first process has
ended. If that is too late, the usage since the last sample is lost: SAMPLE_SECONDS at most,
YOUNG_SAMPLE_SECONDS of a short run.
"""

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agent.domain.sessions.history import Usage
from agent.domain.sessions.session import Process
from agent.kernel.control_groups import MOUNTED, UNIFIED, control_groups
from agent.kernel.processes import live_process
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.tasks import Threads, contained

SAMPLE_SECONDS = 5.0
YOUNG_SAMPLE_SECONDS = 1.0
"""For runs younger than SAMPLE_SECONDS, many of which crash before the first sample."""
THREADS = 2  # One for the periodic samples, 0.1 s for 1,000 sessions, and one for ended runs

_PROC = Path("/proc")


class Counter(NamedTuple):
    """A number in a file of a control group: the whole file, or the value of a key."""

    path: Path
    key: str = ""
    per_second: int = 1

    def read(self) -> int | None:
        """Read the number; None if it is missing. Blocks."""
        try:
            text = self.path.read_text("ascii")
            if self.key:
                text = dict(line.split() for line in text.splitlines())[self.key]
            return int(text)
        except (OSError, ValueError, KeyError):
            return None

    def seconds(self) -> float | None:
        """Read the number as seconds; None if it is missing. Blocks."""
        number = self.read()
        return None if number is None else number / self.per_second


class Counters(NamedTuple):
    """The kernel's counters of one run of a container."""

    cpu_seconds: Counter | None
    peak_memory_bytes: Counter | None
    oom_kills: Counter | None
    refused_pids: Counter | None

    def read(self) -> Usage:
        """Read the usage of the run so far. Blocks."""
        return Usage(
            cpu_seconds=self.cpu_seconds and self.cpu_seconds.seconds(),
            peak_memory_bytes=self.peak_memory_bytes and self.peak_memory_bytes.read(),
            oom_kills=self.oom_kills and self.oom_kills.read(),
            refused_pids=self.refused_pids and self.refused_pids.read(),
        )


def counters_of(groups: str, mounted: Path = MOUNTED) -> Counters:
    """Find a process's counters by its /proc/<pid>/cgroup.

    The root group is not a container's.
    """
    folders = {
        group.controller: group.folders(mounted)[0]
        for group in control_groups(groups)
        if group.path
    }
    cpu = None
    peak = None
    oom = None
    if unified := folders.get(UNIFIED):
        cpu = Counter(unified / "cpu.stat", "usage_usec", per_second=10**6)
        peak = Counter(unified / "memory.peak")
        oom = Counter(unified / "memory.events", "oom_kill")
    if cpuacct := folders.get("cpuacct"):
        cpu = Counter(cpuacct / "cpuacct.usage", per_second=10**9)
    if memory := folders.get("memory"):
        peak = Counter(memory / "memory.max_usage_in_bytes")
        oom = Counter(memory / "memory.oom_control", "oom_kill")
    pids = folders.get("pids", unified)  # Both versions have the same file
    refused = None if pids is None else Counter(pids / "pids.events", "max")
    return Counters(cpu, peak, oom, refused)


def find_counters(process: Process) -> Counters | None:
    """Find the counters of a process; None if it has ended. Blocks."""
    try:
        groups = (_PROC / str(process.pid) / "cgroup").read_text()
    except OSError:
        return None
    return counters_of(groups) if live_process(process.pid) == process else None


@dataclass(slots=True)
class _Run:
    """A watched run. `since`: monotonic seconds; None while its container waits for a program."""

    process: Process
    counters: Counters
    since: float | None
    usage: Usage = field(default_factory=Usage)

    def read(self) -> Usage:
        self.usage = found = self.usage | self.counters.read()
        return found


def _read_each(runs: Sequence[_Run]) -> None:
    """Read runs; an unexpected error of one leaves the others alone. Blocks."""
    for run in runs:
        with contained("cannot read the usage of a session: internal error"):
            run.read()


@dataclass(eq=False)
class UsageMeter:
    """Reads usage of watched runs, on its own threads.

    A container has one run at a time; `holder` is the id for which the container was made.
    """

    clock: Clock
    find: Callable[[Process], Counters | None] = find_counters
    _threads: Threads = field(default_factory=lambda: Threads(THREADS, "usage"), init=False)
    _watched: dict[str, _Run] = field(default_factory=dict, init=False)

    async def run(self) -> None:
        """Read all runs periodically, young ones more often; never returns."""
        all_each = round(SAMPLE_SECONDS / YOUNG_SAMPLE_SECONDS)
        for number in itertools.count(1):
            await self.clock.sleep(YOUNG_SAMPLE_SECONDS)
            young_since = self.clock.monotonic() - SAMPLE_SECONDS
            due = [
                run
                for run in self._watched.values()
                if run.since is not None and (number % all_each == 0 or run.since > young_since)
            ]
            if due:
                await self._threads.run(_read_each, due)

    async def watch(self, holder: str, process: Process, *, waits: bool = False) -> None:
        """Start reading the usage of a run by its first process; no-op if it has ended already.

        It replaces an earlier run of the container. `waits`: it is read periodically only after
        `begin`.
        """
        watched = self._watched.get(holder)
        if watched is not None and watched.process == process:
            return
        self._watched.pop(holder, None)
        since = None if waits else self.clock.monotonic()
        run = await self._threads.run(self._begun, process, since)
        if run is not None:
            self._watched[holder] = run

    async def read(self, holder: str) -> Usage:
        """Return the usage of the container's run, read again if possible."""
        run = self._watched.get(holder)
        return Usage() if run is None else await self._threads.run(run.read)

    def begin(self, holder: str) -> None:
        """Note that the container's run executes its program from now on."""
        if holder in self._watched:
            self._watched[holder].since = self.clock.monotonic()

    def forget(self, holder: str) -> None:
        """Stop reading the usage of the container."""
        self._watched.pop(holder, None)

    async def close(self) -> None:
        """Wait for a read in progress."""
        await self._threads.close()

    def _begun(self, process: Process, since: float | None) -> _Run | None:
        """Read a run for the first time; None if it has ended. Blocks."""
        counters = self.find(process)
        if counters is None:
            return None
        run = _Run(process, counters, since)
        run.read()
        return run
