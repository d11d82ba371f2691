"""Facts about a host, the input of checks, and findings, their results. Pure data."""

import enum
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from agent.settings.model import AgentConfig
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

    `kept_apart`: icc is off on the default bridge. `published`: host ports of agents' containers.
    """

    api: str
    runc: str
    info: Mapping[str, Any]
    data_root: Path
    kept_apart: bool
    published: frozenset[HostPort]


@dataclass(frozen=True, slots=True)
class DockerdFacts:
    """The daemon's process, with settings of daemon.json and its command line.

    `nofile`: highest limit for a container; `network`: network namespace. None without permission.
    """

    settings: Mapping[str, Any]
    nofile: int | None
    network: str | None


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
    """Kernel settings and tables; `flows`: connection tracking entries."""

    local_ports: tuple[int, int]
    reserved_ports: frozenset[int]
    bound_ports: frozenset[HostPort]
    flows: int | None
    max_flows: int | None
    clock_synchronised: bool


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

    `prepared` containers wait for starts; `unprepared` has the causes why others do not.
    """

    version: str
    reconciled: bool
    warnings: tuple[str, ...]
    held_ports: frozenset[HostPort]
    process: ProcessFacts | None
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
class Facts:
    """All facts. A missing file is None, as is the engine's disk if unknown.

    `policy`, `state_format`, `init` and `firewall` are problems; `firewall` is None if disabled.
    `init`: of the first process of containers, None if the agent has not put it in place yet.
    """

    config: AgentConfig
    docker_socket: FileFacts | Unknown | None
    engine: EngineFacts | Unknown
    dockerd: DockerdFacts | Unknown
    engine_disk: DiskFacts | Unknown | None
    kernel: KernelFacts | Unknown
    state_dir: FileFacts | Unknown | None
    state_format: str | Unknown
    state_disk: DiskFacts | Unknown
    init: str | Unknown | None
    agent_socket: FileFacts | Unknown | None
    agent: AgentFacts | Unknown
    policy: str | Unknown
    identity: CertificateFacts | Unknown | None
    tls: CertificateFacts | Unknown | None
    firewall: tuple[str, ...] | Unknown | None


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
