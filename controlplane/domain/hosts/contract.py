"""Value types of the agent contract.

Sizes are bytes, cores are billionths of a core, points in time are seconds since the epoch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from tiltyard.contract import (
    EndReason,
    Identity,
    PreparedShape,
    Protocol,
    Resources,
    SessionSpec,
    State,
)
from tiltyard.records import record


@record(frozen=True, slots=True)
class Port:
    """One port of a session."""

    container: int
    protocol: Protocol
    host: int
    tls: bool = False


@record(frozen=True, slots=True)
class HostSession:
    """A session as its host records it; `sequence` orders the reports of one incarnation."""

    internal_id: str
    identity: Identity
    image: str
    state: State
    ports: tuple[Port, ...]
    reservation: Resources
    injected_env: Mapping[str, str]
    create_time: float
    end_time: float | None
    exit_code: int | None
    end_reason: EndReason | None
    detail: str
    sequence: int
    host: str
    ready_time: float | None = None  # When the ports of its newest run were all bound, None before
    failure_time: float | None = None  # When its last failed run ended, None before
    warm_pool: str = ""  # Id of its pool while it is an unclaimed standby, otherwise ""
    warm_pool_revision: int = 0
    """Revision of the pool whose spec it runs; 0 if it was never a standby."""
    in_doubt: bool = False  # A standby found without its record, which may have been claimed
    size: int = field(default=0, compare=False)  # Bytes of the message that reported it
    state_time: float | None = None  # When it entered its state; None from an older agent
    has_run: bool = True  # Its program was handed to its container at least once
    forced: bool = False  # SIGKILL was needed to end its last run

    @property
    def account(self) -> str:
        """The account of its owner."""
        return self.identity.account

    @property
    def application(self) -> str:
        """The application that it runs."""
        return self.identity.application

    @property
    def ports_by_name(self) -> dict[str, int]:
        """The host ports of the session by container port and protocol, such as `7777/udp`."""
        return {f"{port.container}/{port.protocol}": port.host for port in self.ports}

    @property
    def is_standby(self) -> bool:
        """Return whether it is an unclaimed standby."""
        return bool(self.warm_pool)

    @property
    def is_ready(self) -> bool:
        """Return whether players can reach it."""
        return self.state is State.RUNNING and self.ready_time is not None


class WrittenSession(NamedTuple):
    """A report of a live session that is in its row, according to `Written`.

    `read` parses the rest of the report. It raises ValueError if a field is out of its bounds.
    """

    internal_id: str
    account: str
    application: str
    state: State
    ports: tuple[Port, ...]
    sequence: int
    size: int
    read: Callable[[], HostSession]

    @property
    def is_standby(self) -> bool:
        """Return False: the rows of standbys are those of their claims."""
        return False


@dataclass(frozen=True, slots=True)
class Drain:
    """Drain state of a host; remaining sessions are stopped at the deadline, None for never.

    `revision` grows with every order of an operator; an order on the host itself keeps it.
    """

    revision: int = 0
    draining: bool = False
    deadline: float | None = None

    @property
    def mark(self) -> int:
        """The number by which sessions note that they have this drain; 0 without one."""
        return self.revision + 1 if self.draining else 0


@dataclass(frozen=True, slots=True)
class PoolOnHost:
    """The number of standbys of a pool that a host must keep, and the revision of the order."""

    revision: int
    size: int


@dataclass(frozen=True, slots=True)
class StandbyOrder:
    """An order to keep standbys of a pool. `revision` grows with every order to one host.

    `spec` is None only with size 0, which removes the pool there. `claim_signal` is sent to the
    process of a claimed standby, "" for none.
    """

    pool_id: str
    revision: int
    size: int
    spec: SessionSpec | None
    claim_signal: str = ""


@record(frozen=True, slots=True)
class Claim:
    """A claim of a standby for a session.

    `ttl` in seconds from the claim; `request` is the caller's as JSON, for the game.
    `reservation` is that of the session's row. `again`: a retry of a claim that is already in
    the database.
    """

    internal_id: str
    identity: Identity
    ttl: int | None
    request: str
    reservation: Resources
    again: bool = False


@dataclass(frozen=True, slots=True)
class TicketContents:
    """The contents of a ticket: the time of the order in milliseconds, and the reservation."""

    issued_ms: int
    nano_cpus: int
    memory_bytes: int


@dataclass(frozen=True, slots=True)
class HostReport:
    """State and capacity of a host; `images` (digests) are reported separately.

    `draining` is true also while an order to drain is pending; `drain` is the order received.
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
    platform: str = ""  # Of the images that its engine runs, as "linux/amd64"; empty if unknown
    warm_pools: Mapping[str, PoolOnHost] = field(default_factory=dict)  # By pool id
    starting: frozenset[str] = frozenset()
    """Internal ids that hold capacity and are not reported as sessions yet."""
    free_image_bytes: int | None = None  # On the engine's disks; None if unknown
    prepared: Mapping[str, PreparedShape] = field(default_factory=dict)  # By the key of the shape


@dataclass(frozen=True, slots=True)
class RegistryLogin:
    """Registry credentials for a host's engine; never stored there, never shown."""

    username: str
    password: str = field(repr=False)


class LogPart(NamedTuple):
    """A part of a log; the first one has its offset, None if that is unknown."""

    data: bytes
    offset: int | None


@record(frozen=True, slots=True)
class Answer:
    """A session returned by an agent, with the incarnation of its sequence."""

    session: HostSession
    incarnation: str


@dataclass(frozen=True, slots=True)
class SnapshotBegin:
    """A snapshot begins."""


@dataclass(frozen=True, slots=True)
class SnapshotEnd:
    """A snapshot is complete; what is absent is gone only if it is `reconciled`."""

    reconciled: bool


@record(frozen=True, slots=True)
class SessionsReported:
    """Sessions of a snapshot, or outside of one the changed ones.

    `written`: those that `Written` says to be in their rows.
    """

    sessions: tuple[HostSession, ...]
    written: tuple[WrittenSession, ...] = ()


@dataclass(frozen=True, slots=True)
class ImagesReported:
    """A part of the host's images, by digest; `first` to `last` make the whole list.

    `sizes` are their unpacked bytes.
    """

    images: tuple[str, ...]
    first: bool
    last: bool
    sizes: tuple[int, ...] = ()


WatchEvent = SnapshotBegin | SnapshotEnd | SessionsReported | HostReport | ImagesReported


@record(frozen=True, slots=True)
class WatchMessage:
    """A message of the Watch stream, complete up to `sequence`; a heartbeat has no event."""

    incarnation: str
    sequence: int
    event: WatchEvent | None
