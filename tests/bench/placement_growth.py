"""Cost of placement by total number of hosts.

Hosts of other regions must not slow a choice. Measured in memory, in this process.
"""

import statistics
import time
from dataclasses import replace

from controlplane.domain.hosts.agents import Agent
from controlplane.domain.hosts.contract import HostReport, ImagesReported, WatchMessage
from controlplane.domain.placement.placement import Wanted
from controlplane.fleet.fleet import Fleet
from tests.bench.process_use import in_turn
from tests.bench.report import Result
from tests.bench.simulated_agents import IMAGE
from tests.unit.controlplane.domain.placement.test_placement import HOST
from tests.unit.controlplane.fleet.test_fleet import a_fleet
from tiltyard.contract import PortRequest, Protocol, Resources
from tiltyard.runtime.clock import SystemClock

IN_A_REGION = 10
HOSTS = 10_000
ROUNDS = 30
CHOICES = 1000
_POOL = "default"
_WANTED = Wanted(IMAGE, Resources(10**9, 2**30), (PortRequest(7777, Protocol.UDP),))


def measure(effort: int) -> list[Result]:
    """Measure alternately with few and many hosts."""
    hosts, rounds, choices = (max(10, effort * n // 100) for n in (HOSTS, ROUNDS, CHOICES))
    few = _a_fleet(IN_A_REGION, IN_A_REGION)
    many = _a_fleet(hosts, IN_A_REGION)
    together = _a_fleet(hosts, hosts)
    ways = {
        "few": lambda: _choice_us(few, 1, choices),
        "many": lambda: _choice_us(many, hosts // IN_A_REGION, choices),
        "together": lambda: _choice_us(together, 1, choices),
    }
    times = in_turn(rounds, ways)
    medians = {name: statistics.median(taken) for name, taken in times.items()}
    return [
        Result("fleet.placement.us", medians["few"], "us"),
        Result("fleet.placement.growth", medians["many"] / medians["few"], "x", most=1.5),
        Result("fleet.placement.one_region_us", medians["together"], "us"),
    ]


def _choice_us(fleet: Fleet, regions: int, choices: int) -> float:
    """Choose `choices` hosts, rotating over the regions; return microseconds per choice."""
    names = [_region(number % regions) for number in range(choices)]
    begin = time.perf_counter()
    for name in names:
        link = fleet.take_host(name, _POOL, _WANTED, internal_id="attempt", refused=frozenset())
        assert link is not None
        link.state.give_back("attempt")
    return (time.perf_counter() - begin) / choices * 1e6


def _a_fleet(hosts: int, in_a_region: int) -> Fleet:
    """Create a fleet whose hosts have just reported."""
    fleet = a_fleet(SystemClock())
    for number in range(hosts):
        name = f"host-{number}"
        fleet.add(Agent(name, "unix:/a", _region(number // in_a_region), _POOL))
        link = fleet.host(name)
        assert link is not None
        images = ImagesReported((IMAGE,), first=True, last=True)
        for event in (images, _host(name, number % IN_A_REGION)):
            link.state.apply(WatchMessage("", 1, event), 0.0)
        link.state.note_reconciled()
    return fleet


def _region(number: int) -> str:
    return f"region-{number}"


def _host(name: str, tenths_taken: int) -> HostReport:
    return replace(
        HOST,
        agent_id=name,
        capacity=Resources(64 * 10**9, 256 * 2**30),
        reserved=Resources(tenths_taken * 6 * 10**9, tenths_taken * 24 * 2**30),
        free_sessions=900,
        free_tcp_ports=9000,
        free_udp_ports=9000,
    )
