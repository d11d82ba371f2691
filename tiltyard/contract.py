"""The words that both programs use for what agents run: states, reasons, amounts, specs. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum, auto
from typing import Self

FORMAT = 1
"""Of the messages in agent.proto: all that an agent may send, and what is sent to every agent."""
ERROR_REASON_KEY = "tiltyard-error-reason"
"""Of the trailing metadata with the `ErrorReason` of a failed call, by name."""
REQUEST_KEY = "tiltyard-request"
"""Of the metadata with the id of the HTTP request that caused a call."""


class State(StrEnum):
    """Where a session stands; agent/domain/session.py has the table of transitions."""

    CREATED = auto()
    RUNNING = auto()
    RESTARTING = auto()
    SHUTTINGDOWN = auto()
    EXITED = auto()
    DEAD = auto()

    @property
    def ended(self) -> bool:
        """True once nothing runs and nothing will."""
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


class ErrorReason(StrEnum):
    """Why an agent cannot do what it is called for; ErrorReason of agent.proto by name."""

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
    """How a container is connected."""

    BRIDGE = "bridge"
    HOST = "host"


@dataclass(frozen=True, slots=True)
class Resources:
    """An amount of a host: billionths of a core, bytes of memory, whole GPUs."""

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
        """Return whether `room` holds at least this much of everything."""
        return (
            self.nano_cpus <= room.nano_cpus
            and self.memory_bytes <= room.memory_bytes
            and self.gpus <= room.gpus
        )


@dataclass(frozen=True, slots=True)
class PortRequest:
    """A port that a session asks for; `pinned` is the host port to take, 0 for any."""

    container: int
    protocol: Protocol
    tls: bool = False
    pinned: int = 0


@dataclass(frozen=True, slots=True)
class Identity:
    """Whose a session is; agents keep and show it, and never interpret it.

    `ticket` is in hexadecimal digits; controlplane/pki/tickets.py makes it.
    """

    account: str
    session_id: str
    application: str
    tag: str
    location: str
    labels: Mapping[str, str] = field(default_factory=dict)
    external_id: str = ""
    ticket: str = field(default="", repr=False)

    def names_the_same(self, other: Self) -> bool:
        """True when both are of one session of one account."""
        mine = (self.account, self.session_id, self.application)
        return mine == (other.account, other.session_id, other.application)


@dataclass(frozen=True, slots=True)
class SessionSpec:
    """Everything that a start needs; two starts of one internal id must carry equal specs.

    `image` is a reference by digest, `ttl` is in seconds from the start of the container.
    `disk_bytes` is what its container may write, 0 for the host's own limit.
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

    @property
    def in_host(self) -> bool:
        """True for one in the host's network."""
        return self.network_mode is NetworkMode.HOST

    @property
    def without_secrets(self) -> Self:
        """The spec without the caller's arguments and environment, for labels."""
        return replace(self, args=(), env={})


@dataclass(frozen=True, slots=True)
class PullProgress:
    """How far a pull has come: layers known, layers on the host, compressed bytes received.

    A pull that is `waiting` has not begun, since others are under way.
    """

    layers: int = 0
    layers_done: int = 0
    received_bytes: int = 0
    waiting: bool = False
