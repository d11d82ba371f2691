"""Agent: memory and CPU with no sessions, 100 real ones and 1,000 on an in-memory engine.

Also the time in which a killed agent re-adopts its sessions, without disturbing the games.
"""

import os
import statistics
import time
from typing import NamedTuple

from tests.bench import agent_calls
from tests.bench.memory_host import IMAGE, MemoryHost
from tests.bench.process_use import cores_over, rss_mb
from tests.bench.report import Result
from tests.support.deployment import Steps
from tests.support.harness import AgentProcess, Registry
from tests.support.pushed_image import push_game
from tests.support.real_engine import DockerEngine, remove_traces

REAL = 100
FAKE = 1000
IDLE_SECONDS = 10.0
KILLS = 5
_BACKGROUND_SECONDS = 3.0  # Time in which the background work of starts finishes
_MEMORY_MIB = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2**20


class _Use(NamedTuple):
    """Use of one agent: memory without and with sessions, and cores when idle with them."""

    empty_mb: float
    full_mb: float
    idle_core: float
    kb_per_session: float


def measure(effort: int, steps: Steps) -> list[Result]:
    """Measure with real containers, then with more in memory."""
    idle = max(1.0, effort * IDLE_SECONDS / 100)
    real, fake = (max(4, effort * each // 100) for each in (REAL, FAKE))
    with DockerEngine() as engine, Registry() as registry:
        image = push_game(registry.address).reference
        try:
            with AgentProcess(engine.socket, cpu=real, ram=_MEMORY_MIB) as agent:
                agent_calls.pull(agent, image)
                with steps.step("agent, booted without sessions"):
                    boots = _boots(agent, max(1, effort * KILLS // 100))
                with steps.step(f"agent, {real} sessions"):
                    with_real = _fill(agent, image, real, idle)
                with steps.step(f"agent, killed with {real} sessions") as notes:
                    adopted = _boots(agent, max(1, effort * KILLS // 100))
                    notes.append(", ".join(f"{each:.2f} s" for each in adopted))
        finally:
            remove_traces(engine.socket, registry.address)
    with MemoryHost() as host, steps.step(f"agent, {fake} sessions on an engine in memory"):
        with_fake = _fill(host, IMAGE, fake, idle)
    return [
        Result("agent.rss_mb", with_real.full_mb, "MB", most=80),
        Result("agent.empty.rss_mb", with_real.empty_mb, "MB", most=68),
        Result("agent.kb_per_session", with_fake.kb_per_session, "kB", most=30),
        Result("agent.real.kb_per_session", with_real.kb_per_session, "kB"),
        Result("agent.idle_core", with_real.idle_core, "cores", most=0.01),
        Result("agent.fake.idle_core", with_fake.idle_core, "cores"),
        Result("agent.adopt_s", statistics.median(adopted), "s", most=0.7),
        Result("agent.boot_s", statistics.median(boots), "s"),
    ]


def _fill(agent: AgentProcess, image: str, count: int, idle_seconds: float) -> _Use:
    agent_calls.until_reconciled(agent)
    time.sleep(min(_BACKGROUND_SECONDS, idle_seconds))
    empty = rss_mb(agent.process.pid)
    agent_calls.start_sessions(agent, image, count)
    time.sleep(min(_BACKGROUND_SECONDS, idle_seconds))
    core = cores_over(agent.process.pid, idle_seconds)
    full = rss_mb(agent.process.pid)
    return _Use(empty, full, core, (full - empty) * 1000 / count)


def _boots(agent: AgentProcess, times: int) -> list[float]:
    """Kill the agent `times` times; return the seconds from each launch until it has reconciled.

    Raises RuntimeError if a session is lost or has another process.
    """
    taken = []
    before = agent_calls.processes(agent)
    for _ in range(times):
        agent.kill()
        begin = time.monotonic()
        agent.start()
        agent_calls.until_reconciled(agent)
        taken.append(time.monotonic() - begin)
        if agent_calls.processes(agent) != before:
            raise RuntimeError("a session was disturbed by the end of its agent")
    return taken
