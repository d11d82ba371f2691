"""TTL: delay between a session's deadline and the signal to its process.

A real agent process with real clocks; its engine is in memory, so that only the agent takes time.
Deadlines are read from the sessions' records.
"""

import statistics
import time

from tests.bench import agent_calls
from tests.bench.memory_host import IMAGE, MemoryHost
from tests.bench.report import Result
from tests.faults.records import recorded_sessions
from tests.support.deployment import Steps
from tests.support.harness import wait_until

DEADLINES = 1000
_TTL = 30.0
_MAX_WAIT = 30.0
_LOOK = 0.5


def measure(effort: int, steps: Steps) -> list[Result]:
    """Start the sessions and wait until all have been signalled."""
    count = max(10, effort * DEADLINES // 100)
    # All must have started before the first deadline, so that starts delay no signal.
    ttl = max(3.0, effort * _TTL / 100)
    with MemoryHost() as host, steps.step(f"ttl, {count} deadlines") as notes:
        agent_calls.until_reconciled(host)
        agent_calls.start_sessions(host, IMAGE, count, ttl)
        deadlines = _deadlines(host)
        late = _lateness(host, deadlines)
        notes.append(f"over {max(deadlines.values()) - min(deadlines.values()):.1f} s")
    return [
        Result("ttl.late_p99_ms", statistics.quantiles(late, n=100)[98], "ms", most=50),
        Result("ttl.late_p50_ms", statistics.median(late), "ms"),
        Result("ttl.late_max_ms", max(late), "ms"),
        Result("ttl.early", sum(each < 0 for each in late), "sessions", most=0),
    ]


def _deadlines(host: MemoryHost) -> dict[str, float]:
    """Return each session's deadline, in seconds of CLOCK_BOOTTIME."""
    return {
        session.internal_id: session.deadline.boottime
        for session in recorded_sessions(host.state_dir)
        if session.deadline is not None
    }


def _lateness(host: MemoryHost, deadlines: dict[str, float]) -> list[float]:
    """Wait for all signals; return the milliseconds from each deadline to its signal."""
    wait = max(deadlines.values()) + _MAX_WAIT - time.clock_gettime(time.CLOCK_BOOTTIME)
    wait_until(
        lambda: host.kill_times().keys() == deadlines.keys(), "sessions are left", wait, _LOOK
    )
    killed = host.kill_times()
    return [(killed[internal_id] - due) * 1000 for internal_id, due in deadlines.items()]
