"""Facts about a host, the input of checks, and findings, their results. Pure data."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from agent.domain.host.kernel_needs import KernelNeed
from agent.settings.model import AgentConfig
from agent.settings.policy import Policy
from tiltyard.contract import Protocol

HostPort = tuple[Protocol, int]


@dataclass(frozen=True, slots=True)
class Unknown:
    """Placeholder of facts that could not be gathered."""

    cause: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file, folder or socket; `open_way`: all users can traverse every parent folder."""

    mode: int
    uid: int
    open_way: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """Facts from the Engine API; `info` is the response of GET /info.

    `kept_apart`: icc is off on the default bridge; `bridge_mtu`: the bytes of its largest packet.
    `published`: host ports of agents' containers. `image_root` has the images; it is `data_root`
    unless they are in the store of containerd.
    """

    api: str
    runc: str
    info: Mapping[str, Any]
    data_root: Path
    image_root: Path
    kept_apart: bool
    published: frozenset[HostPort]
    bridge_mtu: int


@dataclass(frozen=True, slots=True)
class DockerdFacts:
    """The daemon's process, with settings of daemon.json and its command line.

    `nofile`: highest limit for a container; `network`: network namespace; `pending_signals`: its
    limit, which containers inherit. None without permission.
    """

    settings: Mapping[str, Any]
    nofile: int | None
    network: str | None
    pending_signals: int | None


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The file system of a folder."""

    path: str
    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Kernel settings and tables; `flows`: connection tracking entries.

    `settings`: those of `NEEDS` that exist in this network namespace. `route_mtu`: the smallest of
    the devices with a default route; None if there is none.
    """

    local_ports: tuple[int, int]
    reserved_ports: frozenset[int]
    bound_ports: frozenset[HostPort]
    flows: int | None
    max_flows: int | None
    clock_synchronised: bool
    settings: Mapping[str, int]
    route_mtu: int | None


@dataclass(frozen=True, slots=True)
class UserCount:
    """The use of a per-user kernel limit.

    `used` counts all programs of the user. `session` is the internal id of the session that uses
    most, `held` its part; empty if unknown.
    """

    user: int
    need: KernelNeed
    used: int
    limit: int
    session: str = ""
    held: int = 0


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process: effective capabilities as bit mask, soft file limit, network if readable."""

    uid: int
    capabilities: int
    nofile: int
    network: str | None


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """Facts from a running agent; `process` is None without permission.

    `first_processes`: ids of processes by the internal id of their session. `prepared` containers
    wait for starts; `unprepared` has the causes why others do not.
    """

    version: str
    reconciled: bool
    warnings: tuple[str, ...]
    held_ports: frozenset[HostPort]
    process: ProcessFacts | None
    first_processes: Mapping[str, int] = field(default_factory=dict)
    prepared: int = 0
    unprepared: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate; `left`: seconds until expiry, `key`: separate key file, if any."""

    name: str
    left: float
    key: FileFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SourceFacts:
    """The address from which sessions send, "" if the kernel selects it; `problem` of nftables."""

    address: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All facts. A missing file is None, as are the engine's disk and users' counts if unknown.

    `state_format`, `init` and `firewall` are problems, as is the text of an invalid `policy`;
    `firewall` is None if disabled.
    `init`: of the first process of containers, None if the agent has not put it in place yet.
    """

    config: AgentConfig
    docker_socket: FileFacts | Unknown | None
    engine: EngineFacts | Unknown
    dockerd: DockerdFacts | Unknown
    engine_disk: DiskFacts | Unknown | None
    image_disk: DiskFacts | Unknown | None
    kernel: KernelFacts | Unknown
    user_counts: tuple[UserCount, ...] | Unknown | None
    state_dir: FileFacts | Unknown | None
    state_format: str | Unknown
    state_disk: DiskFacts | Unknown
    init: str | Unknown | None
    agent_socket: FileFacts | Unknown | None
    agent: AgentFacts | Unknown
    policy: Policy | str | Unknown
    identity: CertificateFacts | Unknown | None
    tls: CertificateFacts | Unknown | None
    firewall: tuple[str, ...] | Unknown | None
    source: SourceFacts | Unknown


class Level(enum.Enum):
    """Severity: `FAIL` breaks a guarantee of the product, `WARN` may weaken one."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check; `hint`, a suggested fix, is empty for `OK`."""

    check: str
    level: Level
    found: str
    hint: str = ""


def ok(check: str, found: str) -> Finding:
    """Return a passed check."""
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, hint: str) -> Finding:
    """Return a weakened or unknown guarantee."""
    return Finding(check, Level.WARN, found, hint)


def bad(check: str, found: str, hint: str) -> Finding:
    """Return a broken guarantee."""
    return Finding(check, Level.FAIL, found, hint)
