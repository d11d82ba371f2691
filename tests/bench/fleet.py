"""Fleet: memory, CPU and restart time of one control plane with many hosts and sessions.

The hosts are simulated in other processes; the control plane and its database are real.
"""

import math
import statistics
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.bench import placement_growth, simulated_agents
from tests.bench.process_use import cores_over, rss_mb
from tests.bench.report import Result
from tests.support.deployment import Steps
from tests.support.harness import ControlPlaneProcess, wait_until

AGENTS = 1000
SESSIONS_EACH = 100
SMALL_AGENTS = 10
IDLE_SECONDS = 10.0
RESTARTS = 3
_BACKGROUND_SECONDS = 5.0  # Time in which the background work of a start finishes
_CONVERGE_TIMEOUT = 300.0  # Long, since the first run inserts all sessions
_LOOK = 0.1
_RARE_LOOK = 1.0
"""Seconds between looks; a look takes the control plane 0.2 ms per host."""


def measure(effort: int, steps: Steps) -> list[Result]:
    """Measure a small and a large fleet, and placement among few and many hosts."""
    agents = max(2 * SMALL_AGENTS, effort * AGENTS // 100)
    idle = max(1.0, effort * IDLE_SECONDS / 100)
    small = a_fleet(SMALL_AGENTS, SESSIONS_EACH, steps)
    idles = f"idle with {SMALL_AGENTS} hosts"
    with small as fleet, steps.step(f"fleet, {idles}"):
        small_core = fleet.idle(idle)
        small_rss = rss_mb(fleet.pid)
    with a_fleet(agents, SESSIONS_EACH, steps) as large:
        with steps.step(f"fleet, restarted with {agents} hosts") as notes:
            converged = [large.restart() for _ in range(max(1, effort * RESTARTS // 100))]
            notes.append(", ".join(f"{each:.2f} s" for each in converged))
        with steps.step(f"fleet, idle with {agents} hosts"):
            core = large.idle(idle)
            rss = rss_mb(large.pid)
    with steps.step("fleet, choice of a host"):
        growth = placement_growth.measure(effort)
    return [
        Result("fleet.rss_mb", rss, "MB", most=600),
        Result("fleet.small.rss_mb", small_rss, "MB", most=80),
        Result("fleet.idle_core", core, "cores", most=0.15),
        Result("fleet.small.idle_core", small_core, "cores"),
        Result("fleet.converge_s", statistics.median(converged), "s", most=5),
        Result("fleet.adopt_s", large.adopted_s, "s"),
        *growth,
    ]


class Fleet:
    """A control plane that has adopted all hosts and their sessions."""

    def __init__(self, control_plane: ControlPlaneProcess, sessions: int) -> None:
        self.control_plane = control_plane
        self._sessions = sessions
        self.adopted_s = math.nan  # Seconds until it had created rows for all sessions

    @property
    def pid(self) -> int:
        """Pid of the control plane."""
        return self.control_plane.process.pid

    def until_converged(self, poll: float = _LOOK) -> None:
        """Wait until the control plane knows every session; it is asked every `poll` seconds."""
        operator = self.control_plane.operator

        def knows_all() -> object:
            agents = operator.get("/operator/agent").expect(200).json()["agents"]
            ready = (agent["sessions"] for agent in agents if agent["state"] == "ready")
            return sum(ready) == self._sessions

        wait_until(knows_all, "not all sessions are known", _CONVERGE_TIMEOUT, poll)

    def restart(self) -> float:
        """Restart the control plane; return the seconds until it knows every session."""
        self.control_plane.process.stop()
        begin = time.monotonic()
        self.control_plane.start()
        self.until_converged()
        return time.monotonic() - begin

    def idle(self, seconds: float) -> float:
        """Return its average CPU use, in cores, without load."""
        time.sleep(min(_BACKGROUND_SECONDS, seconds))
        return cores_over(self.pid, seconds)


@contextmanager
def a_fleet(agents: int, sessions_each: int, steps: Steps, **settings: object) -> Iterator[Fleet]:
    """Run a control plane that has adopted the sessions of simulated hosts."""
    with TemporaryDirectory(prefix="tiltyard-fleet-") as name:
        folder = Path(name)
        reported = simulated_agents.specs(folder, agents)
        regions = list(simulated_agents.REGIONS)
        with ControlPlaneProcess(reported, {}, regions=regions, **settings) as control_plane:
            control_plane.process.start_timeout = _CONVERGE_TIMEOUT
            fleet = Fleet(control_plane, agents * sessions_each)
            key = control_plane.state_dir / "ticket.key"
            with simulated_agents.running(folder, key, agents, sessions_each):
                with steps.step(f"fleet, {agents * sessions_each} sessions adopted"):
                    begin = time.monotonic()
                    fleet.until_converged(_RARE_LOOK)
                    fleet.adopted_s = time.monotonic() - begin
                yield fleet
