"""The parts of a host that sessions live on."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from agent.changes.feed import Feed
from agent.domain.capacity import Capacity
from agent.domain.clock import HostClock
from agent.domain.deadlines import Deadlines
from agent.domain.engine import Engine
from agent.domain.pools import WarmPool
from agent.domain.ports import PortPool
from agent.domain.session import Drain, Port, Resources
from agent.kernel.disks import Disks
from agent.kernel.usage import UsageMeter
from agent.metrics.instruments import Metrics
from agent.network.tls_ports import TlsPorts
from agent.sessions.start_slots import StartSlots
from agent.settings.policy import Policy
from agent.state.drain import HostDrain
from agent.state.record import Records
from tiltyard.runtime.failpoints import Reach

ForgetFlows = Callable[[Sequence[Port]], Awaitable[None]]
"""Has datagrams to these ports routed anew; called whenever the engine has published them."""


@dataclass(frozen=True, slots=True)
class HostSettings:
    """What a host passes to its sessions and grants them; `stop_grace` in seconds.

    `session_disk_bytes` is what a session may write whose spec does not say, 0 for no limit.
    """

    agent_id: str
    public_address: str
    bind_address: str
    env_prefixes: tuple[str, ...]
    stop_grace: float
    session_disk_bytes: int = 0


@dataclass(slots=True, eq=False)
class Host:
    """Everything that the sessions of one host share."""

    settings: HostSettings
    engine: Engine
    records: Records
    capacity: Capacity
    ports: PortPool
    tls_ports: TlsPorts
    deadlines: Deadlines
    drain: HostDrain
    disks: Disks
    feed: Feed
    clock: HostClock
    start_slots: StartSlots
    policy: Policy
    usage: UsageMeter
    forget_flows: ForgetFlows
    reach: Reach
    metrics: Metrics

    def release(self, internal_id: str) -> None:
        """Take back what a session holds, and tell of it."""
        self.capacity.release(internal_id)
        self.tls_ports.close(internal_id)
        self.ports.release(internal_id)
        self.feed.tell_host()


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a host is and has, as its callers are told (agent.proto, Host)."""

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
    """Internal ids of sessions that hold a reservation, and whose start has not settled."""
