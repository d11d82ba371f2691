"""What the sessions of a host use, as the kernel's control groups count it.

Each run of a container has a control group of its own, which the engine removes a moment after
the end of the run. So each is read as soon as it is known, then again and again by one task, and
once more as soon as its first process has ended. Where that comes too late, what the run used
since the last reading is missing: SAMPLE_SECONDS at most, YOUNG_SAMPLE_SECONDS of a short run.
"""

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from agent.domain.history import Usage
from agent.domain.session import Process
from agent.kernel.processes import live_process
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.tasks import Threads

SAMPLE_SECONDS = 5.0
YOUNG_SAMPLE_SECONDS = 1.0
"""For a run that is younger than SAMPLE_SECONDS: many crash before there would be a sample."""
THREADS = 2
"""One for the round over all, 0.1 s for 1,000 sessions; what has ended does not wait for it."""

_CGROUP = Path("/sys/fs/cgroup")
_PROC = Path("/proc")


class Counter(NamedTuple):
    """A number in a file of a control group: the whole file, or the value of a key."""

    path: Path
    key: str = ""
    per_second: int = 1

    def read(self) -> int | None:
        """The number; None when there is none (any more). Blocks."""
        try:
            text = self.path.read_text("ascii")
            if self.key:
                text = dict(line.split() for line in text.splitlines())[self.key]
            return int(text)
        except (OSError, ValueError, KeyError):
            return None

    def seconds(self) -> float | None:
        """The number as a time; None when there is none (any more). Blocks."""
        number = self.read()
        return None if number is None else number / self.per_second


class Counters(NamedTuple):
    """Where the kernel counts for one run of a container."""

    cpu_seconds: Counter | None
    peak_memory_bytes: Counter | None
    oom_kills: Counter | None

    def read(self) -> Usage:
        """What the run has used up to now. Blocks."""
        return Usage(
            cpu_seconds=self.cpu_seconds and self.cpu_seconds.seconds(),
            peak_memory_bytes=self.peak_memory_bytes and self.peak_memory_bytes.read(),
            oom_kills=self.oom_kills and self.oom_kills.read(),
        )


def counters_of(groups: str, root: Path = _CGROUP) -> Counters:
    """Where to read, by a process's /proc/<pid>/cgroup and what is mounted at `root`.

    Of version 1 there is a line for each set of controllers, each with a folder of its own; of
    version 2 there is one line that names none. A machine may have both, and a controller is then
    of one of them. What is in the root group is not a container's.
    """
    found: dict[str, str] = {}
    for line in groups.splitlines():
        _, names, group = line.split(":", 2)
        if group != "/":
            found |= dict.fromkeys(names.split(","), group.lstrip("/"))
    cpu = peak = oom = None
    if "" in found:
        unified = root / found[""]
        cpu = Counter(unified / "cpu.stat", "usage_usec", per_second=10**6)
        peak = Counter(unified / "memory.peak")
        oom = Counter(unified / "memory.events", "oom_kill")
    if "cpuacct" in found:
        cpu = Counter(root / "cpuacct" / found["cpuacct"] / "cpuacct.usage", per_second=10**9)
    if "memory" in found:
        folder = root / "memory" / found["memory"]
        peak = Counter(folder / "memory.max_usage_in_bytes")
        oom = Counter(folder / "memory.oom_control", "oom_kill")
    return Counters(cpu, peak, oom)


def find_counters(process: Process) -> Counters | None:
    """Where the kernel counts for a process; None when it has ended. Blocks."""
    try:
        groups = (_PROC / str(process.pid) / "cgroup").read_text()
    except OSError:
        return None
    return counters_of(groups) if live_process(process.pid) == process else None


@dataclass(slots=True)
class _Run:
    """A run that is watched: where to read, since when (monotonic seconds), what it has used."""

    counters: Counters
    since: float
    usage: Usage = field(default_factory=Usage)

    def read(self) -> Usage:
        self.usage = found = self.usage | self.counters.read()
        return found


class UsageMeter:
    """Reads resource usage of watched runs, on its own threads.

    A run is named by its container's first process.
    """

    def __init__(
        self, clock: Clock, find: Callable[[Process], Counters | None] = find_counters
    ) -> None:
        self._clock = clock
        self._find = find
        self._threads = Threads(THREADS, "usage")
        self._watched: dict[Process, _Run] = {}

    async def run(self) -> None:
        """Read all again and again, and the young more often, for ever."""
        all_each = round(SAMPLE_SECONDS / YOUNG_SAMPLE_SECONDS)
        for number in itertools.count(1):
            await self._clock.sleep(YOUNG_SAMPLE_SECONDS)
            young_since = self._clock.monotonic() - SAMPLE_SECONDS
            due = [
                run
                for run in self._watched.values()
                if number % all_each == 0 or run.since > young_since
            ]
            if due:
                await self._threads.run(lambda runs: [run.read() for run in runs], due)

    async def watch(self, process: Process) -> None:
        """Start reading the usage of this run; do nothing if it has ended already."""
        if process in self._watched:
            return
        counters = await self._threads.run(self._find, process)
        if counters is not None:
            run = self._watched.setdefault(process, _Run(counters, self._clock.monotonic()))
            await self._threads.run(run.read)

    async def read(self, process: Process, *, last: bool = False) -> Usage:
        """What a run has used, read once more if that can be; after the `last` it is forgotten."""
        run = self._watched.pop(process, None) if last else self._watched.get(process)
        return Usage() if run is None else await self._threads.run(run.read)

    async def close(self) -> None:
        """Wait for a read in progress."""
        await self._threads.close()
