"""The report of a host (`Host` in agent.proto). Pure."""

from dataclasses import dataclass

from agent.domain.pools import WarmPool
from agent.domain.session import Drain
from tiltyard.contract import Resources


@dataclass(frozen=True, slots=True)
class HostReport:
    """A snapshot of a host; `starting` has internal ids."""

    agent_id: str
    version: str
    public_address: str
    latency_addresses: tuple[str, ...]
    capacity: Resources
    reserved: Resources
    free_sessions: int
    port_range: tuple[int, int]
    free_tcp_ports: int
    free_udp_ports: int
    image_count: int
    engine_available: bool
    engine_version: str
    runc_version: str
    kernel_version: str
    start_slots: int
    warnings: tuple[str, ...]
    drain: Drain
    tls: bool
    disk_full: bool = False
    warm_pools: tuple[WarmPool, ...] = ()
    starting: tuple[str, ...] = ()
