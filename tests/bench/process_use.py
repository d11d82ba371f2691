"""Memory and CPU use of a process, from /proc."""

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
    """Return the CPU time of a process, user and system."""
    # The program's name may contain anything; it ends at the last parenthesis.
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS_PER_SECOND


def cores_over(pid: int, seconds: float) -> float:
    """Return a process's average CPU use, in cores, over the next `seconds`."""
    begin, used = time.monotonic(), cpu_seconds(pid)
    time.sleep(seconds)
    return (cpu_seconds(pid) - used) / (time.monotonic() - begin)
