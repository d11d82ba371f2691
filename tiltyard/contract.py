"""Types that both programs share: session states, reasons, resources and specs."""

import hashlib
import json
from collections.abc import Hashable, Mapping
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum, auto
from functools import lru_cache
from typing import Self

from tiltyard.records import record

FORMAT = 1  # Version of the messages in agent.proto, in both directions
ERROR_REASON_KEY = "tiltyard-error-reason"
"""Trailing metadata key: the name of the `ErrorReason` of a failed call."""
REQUEST_KEY = "tiltyard-request"  # Metadata key: the id of the HTTP request that caused a call
NANO = 10**9  # Nano-CPUs in a core
MEBI = 2**20  # Bytes in a mebibyte
MIN_PIDS = 16  # Of a session's limit of processes: a runtime needs some to begin a container
MAX_PIDS = 32_768
"""Most processes of a session: what a kernel allows on a small machine in all."""


class State(StrEnum):
    """State of a session; agent/domain/sessions/session.py has the transition table."""

    CREATED = auto()
    RUNNING = auto()
    RESTARTING = auto()
    SHUTTINGDOWN = auto()
    EXITED = auto()
    DEAD = auto()

    @property
    def ended(self) -> bool:
        """Whether the state is terminal."""
        return self is State.EXITED or self is State.DEAD


class EndReason(StrEnum):
    """Why a session ended."""

    STOPPED = auto()
    TTL = auto()
    EXITED = auto()
    OOM = auto()
    DRAIN = auto()
    HOST_RESTART = auto()
    HOST_LOST = auto()
    ENGINE_ERROR = auto()
    DISK = auto()
    LOG = auto()


class ErrorReason(StrEnum):
    """Why an agent refused or failed a call; the names are those of agent.proto."""

    INVALID_ARGUMENT = auto()
    SESSION_NOT_FOUND = auto()
    SPEC_CONFLICT = auto()
    SESSION_STOPPED = auto()
    SESSION_LIVE = auto()
    NO_CAPACITY = auto()
    NO_FREE_PORT = auto()
    PORT_TAKEN = auto()
    PORT_OUT_OF_RANGE = auto()
    START_QUEUE_FULL = auto()
    NOT_RECONCILED = auto()
    DRAINING = auto()
    IMAGE_MISSING = auto()
    IMAGE_CANNOT_RUN = auto()
    IMAGE_NOT_FOUND = auto()
    IMAGE_IN_USE = auto()
    REGISTRY_UNAVAILABLE = auto()
    REGISTRY_TIMEOUT = auto()
    ENGINE_UNAVAILABLE = auto()
    ENGINE_TIMEOUT = auto()
    ENGINE_ERROR = auto()
    CANNOT_KILL = auto()
    CONTAINER_GONE = auto()
    PATH_NOT_FOUND = auto()
    ARTIFACT_TOO_LARGE = auto()
    LOG_GONE = auto()
    DISK_FULL = auto()
    STANDBY_NOT_CLAIMABLE = auto()
    STALE_REVISION = auto()
    UNIMPLEMENTED = auto()
    INTERNAL = auto()
    NOT_ALLOWED = auto()


class Protocol(StrEnum):
    """Transport protocol of a port."""

    TCP = "tcp"
    UDP = "udp"


class NetworkMode(StrEnum):
    """Network of a container."""

    BRIDGE = "bridge"
    HOST = "host"


class Capability(StrEnum):
    """A capability of Linux that a container may have; it has none of the others."""

    CHOWN = "CHOWN"
    DAC_OVERRIDE = "DAC_OVERRIDE"
    FOWNER = "FOWNER"
    SETUID = "SETUID"
    SETGID = "SETGID"
    KILL = "KILL"
    NET_BIND_SERVICE = "NET_BIND_SERVICE"
    SYS_CHROOT = "SYS_CHROOT"
    AUDIT_WRITE = "AUDIT_WRITE"


@record(frozen=True, slots=True)
class Resources:
    """Resources of a host: billionths of a core, bytes of memory, whole GPUs."""

    nano_cpus: int = 0
    memory_bytes: int = 0
    gpus: int = 0

    def __add__(self, other: Self) -> "Resources":
        return Resources(
            self.nano_cpus + other.nano_cpus,
            self.memory_bytes + other.memory_bytes,
            self.gpus + other.gpus,
        )

    def __sub__(self, other: Self) -> "Resources":
        return Resources(
            self.nano_cpus - other.nano_cpus,
            self.memory_bytes - other.memory_bytes,
            self.gpus - other.gpus,
        )

    def fits_in(self, room: Self) -> bool:
        """Return whether `room` has at least this much of each resource."""
        return (
            self.nano_cpus <= room.nano_cpus
            and self.memory_bytes <= room.memory_bytes
            and self.gpus <= room.gpus
        )


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A requested port.

    `pinned`: the host port, 0 for any. `same`: the program binds its host port, also in a network
    of its own; `container` then only names the port.
    """

    container: int
    protocol: Protocol
    tls: bool = False
    pinned: int = 0
    same: bool = False


@record(frozen=True, slots=True)
class Identity:
    """The identity of a session. Agents store and report it but never interpret it.

    `ticket` is hexadecimal, from controlplane/pki/tickets.py. `traceparent` is that of the start,
    as of `agent.traces.read_traceparent`.
    """

    account: str
    session_id: str
    application: str
    tag: str
    location: str
    labels: Mapping[str, str] = field(default_factory=dict)
    external_id: str = ""
    ticket: str = field(default="", repr=False)
    traceparent: str = ""

    def names_the_same(self, other: Self) -> bool:
        """Return whether both identify the same session."""
        mine = (self.account, self.session_id, self.application)
        return mine == (other.account, other.session_id, other.application)


@record(frozen=True, slots=True)
class SessionSpec:
    """Everything that a start needs. Repeated starts of one internal id must have equal specs.

    `image` is a reference by digest; `ttl`: seconds from the start of the container; `disk_bytes`:
    write limit of the container, 0 for the host's limit; `pids`: most processes and threads, 0 for
    the host's limit; `shm_bytes`: size of /dev/shm, 0 for one by the memory limit. `stop_signal`:
    the name of the signal of a stop, empty for the image's; `stop_grace`: seconds from it to
    SIGKILL, 0 for the host's. `capabilities` of the container are sorted, each once. `image_init`:
    the image has an init of its own, which becomes process 1. `contiguous`: the host ports are
    neighbours, in the order of `ports`.
    """

    identity: Identity
    image: str
    network_mode: NetworkMode
    reservation: Resources
    limits: Resources
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict)
    restart: bool = False
    ttl: float | None = None
    ports: tuple[PortRequest, ...] = ()
    disk_bytes: int = 0
    pids: int = 0
    shm_bytes: int = 0
    stop_signal: str = ""
    stop_grace: float = 0.0
    capabilities: tuple[Capability, ...] = ()
    image_init: bool = False
    contiguous: bool = False

    @property
    def in_host(self) -> bool:
        """Whether the session uses the host's network."""
        return self.network_mode is NetworkMode.HOST

    @property
    def without_secrets(self) -> Self:
        """The spec without arguments and environment, for labels."""
        return replace(self, args=(), env={})

    @property
    def shape(self) -> "SessionSpec | None":
        """What a container of this spec has from its creation, for any session of the account.

        Sessions of one shape can use the same prepared container. None if the session can use no
        prepared container, since it needs GPUs or a certain host port.
        """
        is_pinned = any(port.pinned for port in self.ports)
        if is_pinned or self.reservation.gpus or self.limits.gpus:
            return None
        owner = Identity(self.identity.account, "", "", "", "")
        return replace(
            self,
            identity=owner,
            args=(),
            env={},
            restart=False,
            ttl=None,
            stop_signal="",
            stop_grace=0.0,
            image_init=False,
        )


def shape_key(shape: SessionSpec) -> str:
    """Return the name of a shape in reports: 32 hex digits, the same in both programs."""
    return _key_of(
        (
            shape.identity.account,
            shape.image,
            shape.network_mode,
            shape.reservation,
            shape.limits,
            shape.ports,
            shape.disk_bytes,
            shape.pids,
            shape.shm_bytes,
            shape.capabilities,
            shape.contiguous,
        )
    )


@lru_cache(maxsize=4096)
def _key_of(fixed: tuple[Hashable, ...]) -> str:
    """Return the key of what is fixed; every start needs it, and starts share few shapes."""
    canonical = json.dumps(fixed, default=asdict, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class PreparedShape:
    """The prepared containers of one shape on a host.

    `key` is the shape's `shape_key`, `image` a reference by digest; `kept` containers wait for a
    start. `error`: why the last preparation failed, "" if it succeeded.
    """

    key: str
    image: str
    kept: int
    error: str = ""
