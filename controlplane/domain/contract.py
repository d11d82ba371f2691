"""What the agent contract carries, as values of our own.

Sizes are bytes, cores are billionths of a core, points in time are milliseconds since the epoch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tiltyard.contract import EndReason, Identity, Protocol, Resources, SessionSpec, State


@dataclass(frozen=True, slots=True)
class Port:
    """One port of a session."""

    container: int
    protocol: Protocol
    host: int
    tls: bool = False


@dataclass(frozen=True, slots=True)
class HostSession:
    """A session as its host records it; `sequence` orders what one incarnation says of it."""

    internal_id: str
    identity: Identity
    image: str
    state: State
    ports: tuple[Port, ...]
    reservation: Resources
    injected_env: Mapping[str, str]
    create_ms: int
    expire_ms: int | None
    end_ms: int | None
    exit_code: int | None
    end_reason: EndReason | None
    detail: str
    sequence: int
    host: str
    ready_ms: int | None = None
    """When the ports of its newest run were all bound, None before."""
    warm_pool: str = ""
    """Id of the pool that it is a standby of; "" for a session, and once it was claimed."""
    warm_pool_revision: int = 0
    """Revision of the pool whose spec it runs; 0 for what was never a standby."""
    in_doubt: bool = False
    """A standby that was found without its record: it may have been claimed."""

    @property
    def is_standby(self) -> bool:
        """Return whether it waits in a warm pool, so that it is no session yet."""
        return bool(self.warm_pool)

    @property
    def is_ready(self) -> bool:
        """Return whether players can reach it."""
        return self.state is State.RUNNING and self.ready_ms is not None


@dataclass(frozen=True, slots=True)
class Drain:
    """Whether a host takes no new sessions; what is left at its deadline is stopped.

    `revision` grows with every order of an operator's; an order that was given on the host itself
    has that of the one before. `deadline_ms` in Unix time; None: sessions end when they end.
    """

    revision: int = 0
    draining: bool = False
    deadline_ms: int | None = None


@dataclass(frozen=True, slots=True)
class PoolOnHost:
    """How many standbys of a pool a host is to keep, and by which revision."""

    revision: int
    size: int


@dataclass(frozen=True, slots=True)
class StandbyOrder:
    """What a host is sent of a warm pool. `revision` grows with every order to one host.

    The spec is that of every standby; None only with size 0, which ends the pool there. The signal
    is what the process of a standby gets once it was claimed, "" for none.
    """

    pool_id: str
    revision: int
    size: int
    spec: SessionSpec | None
    claim_signal: str = ""


@dataclass(frozen=True, slots=True)
class Claim:
    """A standby that becomes a session.

    `ttl` in seconds from the claim; `request` is the caller's as JSON, for the game. `again`: the
    database holds this claim already, and it is made once more.
    """

    internal_id: str
    identity: Identity
    ttl: int | None
    request: str
    again: bool = False


@dataclass(frozen=True, slots=True)
class HostReport:
    """What a host is and has room for; `images`, by digest, are reported apart from the rest.

    `draining` is true also while an order to drain is pending; `drain` is what it has received.
    """

    agent_id: str
    version: str
    public_address: str
    latency_addresses: tuple[str, ...]
    capacity: Resources
    reserved: Resources
    free_sessions: int
    port_range_first: int
    port_range_last: int
    free_tcp_ports: int
    free_udp_ports: int
    images: frozenset[str]
    tls: bool
    draining: bool
    engine_available: bool
    start_slots: int
    disk_full: bool = False
    drain: Drain = Drain()
    engine_version: str = ""
    runc_version: str = ""
    kernel_version: str = ""
    warm_pools: Mapping[str, PoolOnHost] = field(default_factory=dict)
    """By the pool's id."""
    starting: frozenset[str] = frozenset()
    """Internal ids that it has counted and not reported as sessions yet."""


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """How a host's engine logs in to a registry; never kept there, never shown."""

    username: str
    password: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class Answer:
    """A session as an agent answered it, with the incarnation that its sequence belongs to."""

    session: HostSession
    incarnation: str


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot begins."""


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """A snapshot is complete; only when `reconciled` does absence from it mean gone."""

    reconciled: bool


@dataclass(frozen=True, slots=True)
class SessionsReported:
    """Sessions, of the snapshot when inside one, else changed ones."""

    sessions: tuple[HostSession, ...]


@dataclass(frozen=True, slots=True)
class HostReported:
    """The host, at its newest."""

    host: HostReport


@dataclass(frozen=True, slots=True)
class ImagesReported:
    """Some of the images on the host, by digest; from `first` to `last` it is all of them."""

    images: tuple[str, ...]
    first: bool
    last: bool


WatchEvent = SnapshotBegin | SnapshotEnd | SessionsReported | HostReported | ImagesReported


@dataclass(frozen=True, slots=True)
class WatchMessage:
    """One message of the Watch stream: everything up to `sequence` has now been sent.

    A heartbeat has no event.
    """

    incarnation: str
    sequence: int
    event: WatchEvent | None


@dataclass(frozen=True, slots=True)
class FailedRun:
    """A run that was to be followed by another, `delay` seconds after its end."""

    start_ms: int | None
    end_ms: int
    exit_code: int | None
    oom_killed: bool
    delay: float


@dataclass(frozen=True, slots=True)
class Moment:
    """A state, and since when the session was in it."""

    state: State
    time_ms: int


@dataclass(frozen=True, slots=True)
class SessionReport:
    """How a session ended, how it came there, what it used, and the end of its log.

    `log` is None when the host does not have it; `log_truncated` when it is longer than that.
    """

    state: State
    end_reason: EndReason
    detail: str
    create_ms: int
    end_ms: int
    exit_code: int | None
    signal: int | None
    oom_killed: bool
    restart_count: int
    failed_runs: tuple[FailedRun, ...]
    timeline: tuple[Moment, ...]
    cpu_seconds: float | None
    peak_memory_bytes: int | None
    log: bytes | None
    log_truncated: bool
