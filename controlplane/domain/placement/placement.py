"""Selection of hosts, best first. Pure: time is an argument.

This module says of one host whether it can take a session and how it ranks. `host_index` answers
both for all hosts of a region and node pool at once, without looking at each. What is known of a
host is a hint: admission is up to its agent.

A session or standby gets its host in one of four ways. Three follow the rules of `_lasting`:
`HostIndex.best` (`Fleet.take_host`), a free slot for a waiting start (`fleet/queue.py`), and new
standbys (`standby_shares.py`), where they limit how a host's share grows. A rule that
excludes hosts is added there, with its text in `explanation.py`, one that prefers some to
`rank_key`, or to `rank_start` if it concerns starts alone; either also to `host_index`, which a
test compares with this module. Hosts without a view are explained in `Fleet`. A claim gets the
host of its standby, which has image, disk and room already: a rule that must hold for claims, too,
is added to `Fleet.takes_claims`; that a standby is of its pool, `StandbyPools.can_claim` checks.
"""

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple

from controlplane.domain.applications.privileges import NO_PRIVILEGES, Privileges
from controlplane.domain.hosts.contract import HostReport
from controlplane.domain.placement.start_failures import Owner, StartFailure
from tiltyard.contract import PortRequest, Protocol, Resources, SessionSpec, shape_key
from tiltyard.runtime.fair_share import exceeds_share

_NOTHING = Resources()


class Strategy(StrEnum):
    """How a node pool fills its hosts."""

    PACKED = "packed"
    SPREAD = "spread"


@dataclass(frozen=True, slots=True)
class NodePoolRules:
    """How a node pool fills its hosts, and what its sessions may do beyond others."""

    strategy: Strategy = Strategy.PACKED
    privileges: Privileges = NO_PRIVILEGES


def _none_spare(_: str) -> int:
    return 0


@dataclass(frozen=True, slots=True)
class HostView:
    """A host as placement sees it at one moment.

    `in_flight` counts the starts that the host's report does not include yet, `held` is what they
    hold. `starting` counts the start slots in use, `starting_of_account` those that the account of
    the start is known to hold. `spare` returns how many prepared containers of a shape wait there
    that no start in flight counts on. `used_ports` returns the taken host ports; it is called only
    if a port is pinned. `report_age`: time since the agent's last report. `in_doubt`: a start
    there has had no answer since. `failure`: why the host is avoided.
    """

    agent: str
    host: HostReport
    report_age: float
    held: Resources = _NOTHING
    starting: int = 0
    starting_of_account: int = 0
    in_flight: int = 0
    spare: Callable[[str], int] = _none_spare
    used_ports: Callable[[], Collection[tuple[Protocol, int]]] = frozenset
    latency: float | None = None
    in_doubt: bool = False
    failure: StartFailure | None = None


@dataclass(frozen=True, slots=True)
class Wanted:
    """Requirements of a session for its host; failed starts of `owner` count against a host.

    `shape` is the key of its shape, "" if it can use no prepared container.
    """

    image: str
    reservation: Resources
    ports: tuple[PortRequest, ...]
    owner: Owner = ("", "")
    shape: str = ""

    @property
    def account(self) -> str:
        """The account whose share of the start slots it takes."""
        return self.owner[0]


def wanted_for(spec: SessionSpec) -> Wanted:
    """Return what a session of this spec needs of its host."""
    identity = spec.identity
    shape = spec.shape
    return Wanted(
        image=spec.image,
        reservation=spec.reservation,
        ports=spec.ports,
        owner=(identity.account, identity.application),
        shape="" if shape is None else shape_key(shape),
    )


class ObstacleKind(StrEnum):
    """Why a host cannot take a session; a busy one can once a start has ended."""

    CONNECTING = "connecting"
    NEWER = "newer"
    HOST_NETWORK = "host_network"
    CAPABILITIES = "capabilities"  # Both of a whole node pool: refused before a host is selected
    UNRESPONSIVE = "unresponsive"
    ENGINE_UNAVAILABLE = "engine_unavailable"
    DRAINING = "draining"
    DISK_FULL = "disk_full"
    IMAGE_MISSING = "image_missing"
    SESSIONS = "sessions"
    CPU = "cpu"
    RAM = "ram"
    GPU = "gpu"
    TLS_MISSING = "tls_missing"
    TCP_PORTS = "tcp_ports"
    UDP_PORTS = "udp_ports"
    PORT_OUT_OF_RANGE = "port_out_of_range"
    PORT_TAKEN = "port_taken"
    BUSY = "busy"


class Obstacle(NamedTuple):
    """A reason why a host cannot take a session, with its figures.

    `wanted` exceeds `free`; `held` is what starts in progress hold. Cores are billionths, memory
    is bytes. For an unresponsive host `wanted` and `free` are the seconds allowed and passed, for
    a busy one its start slots and the starts in progress, of which the account has `held`.
    """

    kind: ObstacleKind
    wanted: float = 0
    free: float = 0
    held: float = 0
    port: PortRequest | None = None


def obstacles(view: HostView, wanted: Wanted, max_age: float) -> Iterator[Obstacle]:
    """Yield why a host cannot take a session now; for placement and its explanation."""
    yield from _lasting(view, wanted, max_age)
    if not can_begin(view, wanted):
        held = view.starting_of_account
        yield Obstacle(ObstacleKind.BUSY, view.host.start_slots, view.starting, held)


RankKey = tuple[bool, bool, float, float]


def rank_start(view: HostView, wanted: Wanted, strategy: Strategy) -> tuple[RankKey, bool]:
    """Return the sort key of a host for a start, best first.

    Of hosts with equal `rank_key`, those with a prepared container for the session come first.
    """
    return (rank_key(view, strategy), not view.spare(wanted.shape))


def rank_key(view: HostView, strategy: Strategy) -> RankKey:
    """Return the sort key of a host, best first.

    Hosts in doubt, which may be dead, come last, and avoided ones before them. Packed is fullest
    first, so that empty hosts can be removed; spread is the reverse. Then by latency in whole
    milliseconds, unknown last.
    """
    full = fullness(view.host, view.held)
    latency = whole_milliseconds(view.latency)
    filled = -full if strategy is Strategy.PACKED else full
    return (view.in_doubt, view.failure is not None, filled, latency)


def whole_milliseconds(latency: float | None) -> float:
    """Return a latency in seconds as placement compares it; infinite if unknown."""
    return float("inf") if latency is None else round(latency * 1000)


def fullness(host: HostReport, held: Resources) -> float:
    """Return the used share of a host's cores or memory, the greater of both, from 0 to 1.

    `held` is what the starts in flight hold besides what the host reports as reserved.
    """
    capacity = host.capacity
    reserved = host.reserved
    return max(
        (reserved.nano_cpus + held.nano_cpus) / max(capacity.nano_cpus, 1),
        (reserved.memory_bytes + held.memory_bytes) / max(capacity.memory_bytes, 1),
    )


def can_begin(view: HostView, wanted: Wanted) -> bool:
    """Return whether the host can begin a start now: a prepared container needs no start slot."""
    return view.spare(wanted.shape) > 0 or _has_start_slot(view)


def _has_start_slot(view: HostView) -> bool:
    return not exceeds_share(view.starting_of_account, 1, view.starting, view.host.start_slots)


def is_usable(view: HostView, max_age: float) -> bool:
    """Return whether the host takes sessions at all."""
    return _none(_unusable(view, max_age))


def has_room(view: HostView, wanted: Wanted, max_age: float) -> bool:
    """Return whether the host could take the session, given a free start slot."""
    return _none(_lasting(view, wanted, max_age))


def _none(found: Iterator[Obstacle]) -> bool:
    return next(found, None) is None


def _lasting(view: HostView, wanted: Wanted, max_age: float) -> Iterator[Obstacle]:
    """Yield the obstacles other than a missing start slot."""
    yield from _unusable(view, max_age)
    host = view.host
    if host.disk_full:
        yield Obstacle(ObstacleKind.DISK_FULL)
    if wanted.image not in host.images:
        yield Obstacle(ObstacleKind.IMAGE_MISSING)
    if view.in_flight >= host.free_sessions:
        free = host.free_sessions - view.in_flight
        yield Obstacle(ObstacleKind.SESSIONS, 1, free, view.in_flight)
    yield from _short_of_resources(view, wanted.reservation)
    if wanted.ports:
        yield from _short_of_ports(view, wanted.ports)


def _unusable(view: HostView, max_age: float) -> Iterator[Obstacle]:
    """Yield obstacles to any session; those to the wanted one are in `_lasting`."""
    if view.report_age > max_age:
        yield Obstacle(ObstacleKind.UNRESPONSIVE, max_age, view.report_age)
    if not view.host.engine_available:
        yield Obstacle(ObstacleKind.ENGINE_UNAVAILABLE)
    if view.host.draining:
        yield Obstacle(ObstacleKind.DRAINING)


def _short_of_resources(view: HostView, wanted: Resources) -> Iterator[Obstacle]:
    capacity = view.host.capacity
    reserved = view.host.reserved
    held = view.held
    free = capacity.nano_cpus - reserved.nano_cpus - held.nano_cpus
    if wanted.nano_cpus > free:
        yield Obstacle(ObstacleKind.CPU, wanted.nano_cpus, free, held.nano_cpus)
    free = capacity.memory_bytes - reserved.memory_bytes - held.memory_bytes
    if wanted.memory_bytes > free:
        yield Obstacle(ObstacleKind.RAM, wanted.memory_bytes, free, held.memory_bytes)
    free = capacity.gpus - reserved.gpus - held.gpus
    if wanted.gpus > free:
        yield Obstacle(ObstacleKind.GPU, wanted.gpus, free, held.gpus)


def _short_of_ports(view: HostView, ports: tuple[PortRequest, ...]) -> Iterator[Obstacle]:
    host = view.host
    tcp = 0
    tls = False
    pins = []
    for port in ports:
        tcp += port.protocol is Protocol.TCP
        tls = tls or port.tls
        if port.pinned:
            pins.append(port)
    if tls and not host.tls:
        yield Obstacle(ObstacleKind.TLS_MISSING)
    if tcp > host.free_tcp_ports:
        yield Obstacle(ObstacleKind.TCP_PORTS, tcp, host.free_tcp_ports)
    if len(ports) - tcp > host.free_udp_ports:
        yield Obstacle(ObstacleKind.UDP_PORTS, len(ports) - tcp, host.free_udp_ports)
    if not pins:
        return
    used = view.used_ports()
    for pin in pins:
        if not host.port_range_first <= pin.pinned <= host.port_range_last:
            yield Obstacle(ObstacleKind.PORT_OUT_OF_RANGE, port=pin)
        elif (pin.protocol, pin.pinned) in used:
            yield Obstacle(ObstacleKind.PORT_TAKEN, port=pin)
