"""What a process has and uses, by the kernel's account."""

import os
import time
from pathlib import Path

_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")


def rss_mb(pid: int) -> float:
    """Return the resident memory of a process in MB (10^6 bytes)."""
    (line,) = (
        line
        for line in Path(f"/proc/{pid}/status").read_text().splitlines()
        if line.startswith("VmRSS:")
    )
    return int(line.split()[1]) * 1024 / 1e6


def cpu_seconds(pid: int) -> float:
    """Return the processor time that a process has used, in its own name and the kernel's."""
    # The name of the program, which may hold anything, ends at the last parenthesis.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def cores_over(pid: int, seconds: float) -> float:
    """Return how many cores a process uses on average over the next `seconds`."""
    begin, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - begin)
