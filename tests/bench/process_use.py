"""Measurements: of variants in turn, and of the memory, CPU time and flushes of processes.

Variants alternate, since the machine's speed may change.
"""

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, TypeVar

from tests.support.leaks import resident_bytes

T = TypeVar("T")
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def in_turn(
    rounds: int, ways: Mapping[str, Callable[[], T]], ready: Callable[[], object] = bool
) -> dict[str, list[T]]:
    """Run each variant `rounds` times, in rotating order, each after `ready` returns."""
    results: dict[str, list[T]] = {name: [] for name in ways}
    names = list(ways)
    for number in range(rounds):
        for place in range(len(names)):
            name = names[(number + place) % len(names)]
            ready()
            results[name].append(ways[name]())
    return results


def seconds(work: Callable[[], object]) -> float:
    """Return the duration of `work`."""
    begin = time.perf_counter()
    work()
    return time.perf_counter() - begin


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (10^6 bytes)."""
    return resident_bytes(pid) / 1e6


def relays_of(ports: set[str]) -> set[int]:
    """Return the processes of the engine that relay these host ports."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
        except (FileNotFoundError, ProcessLookupError):
            continue
        if words[0].endswith("docker-proxy") and ports.intersection(words):
            found.add(int(folder.name))
    return found


def parent_pid(pid: int) -> int:
    """Return the process that has started another."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def pss_bytes(pid: int) -> int:
    """Return the proportional share of memory of a process."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def pss_of_containers(found: Sequence[Mapping[str, Any]]) -> tuple[float, bool]:
    """Return MB of one of these inspected containers; whether processes relay their ports."""
    inits = [int(each["State"]["Pid"]) for each in found]
    ports = {
        binding["HostPort"]
        for each in found
        for bindings in (each["HostConfig"]["PortBindings"] or {}).values()
        for binding in bindings
    }
    relays = relays_of(ports)
    pids = {*inits, *map(parent_pid, inits), *relays}
    return sum(map(pss_bytes, pids)) / len(found) / 1e6, bool(relays)


def cpu_seconds(pid: int) -> float:
    """Return the CPU time of a process, user and system."""
    # The program's name may contain anything; it ends at the last parenthesis.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def machine_ticks() -> tuple[int, int]:
    """Return for how many clock ticks cores were taken by the hypervisor, and were wanted."""
    ticks = [int(each) for each in Path("/proc/stat").read_text().splitlines()[0].split()[1:9]]
    return ticks[7], sum(ticks) - ticks[3] - ticks[4]


class CpuMeter:
    """Milliseconds of CPU time of programs, of one or more processes each, per piece of work."""

    def __init__(self, programs: Mapping[str, Sequence[int]]) -> None:
        """`programs` are the pids of each program by its name."""
        self._programs = programs
        self.per_piece: dict[str, list[float]] = {name: [] for name in programs}
        """The use per piece of each measured work."""

    def measure(self, work: Callable[[], T], pieces: int) -> T:
        """Do work in this number of pieces."""
        before = self._used()
        result = work()
        for name, used in self._used().items():
            self.per_piece[name].append((used - before[name]) * 1000 / pieces)
        return result

    def _used(self) -> dict[str, float]:
        return {name: sum(map(cpu_seconds, pids)) for name, pids in self._programs.items()}


class FlushMeter(CpuMeter):
    """Instead, calls of fsync and fdatasync, under strace, which slows the programs down."""

    def measure(self, work: Callable[[], T], pieces: int) -> T:
        with ExitStack() as stack:
            for name, pids in self._programs.items():
                stack.enter_context(self._traced(name, pids, pieces))
            return work()

    @contextmanager
    def _traced(self, name: str, pids: Sequence[int], pieces: int) -> Iterator[None]:
        traced = ["-p", ",".join(map(str, pids))]
        with NamedTemporaryFile("r") as counts:
            command = ["strace", "-fce", "trace=fsync,fdatasync", "-o", counts.name, *traced]
            with subprocess.Popen(command, stderr=subprocess.PIPE) as strace:
                assert strace.stderr is not None
                for _ in pids:
                    strace.stderr.readline()  # it has attached to a process and its threads
                try:
                    yield
                finally:
                    strace.send_signal(signal.SIGINT)
                    strace.communicate()
            calls = re.findall(r"(\d+) +f(?:data)?sync$", counts.read(), re.MULTILINE)
        self.per_piece[name].append(sum(map(int, calls)) / pieces)


def cores_over(pid: int, seconds: float) -> float:
    """Return a process's average CPU use, in cores, over the next `seconds`."""
    begin = time.monotonic()
    used = cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - begin)
