"""Facts about a host at one moment, the input of checks, and what a check finds. Pure data."""

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
    """In place of facts that could not be gathered."""

    cause: str


@dataclass(frozen=True, slots=True)
class FileFacts:
    """A file, folder or socket; `open_way`: all users can traverse every parent folder."""

    mode: int
    uid: int
    open_way: bool


@dataclass(frozen=True, slots=True)
class EngineFacts:
    """What Docker Engine says of itself; `info` is its answer of that name.

    `kept_apart`: containers of the default bridge cannot reach each other. `published` are the
    host ports of containers that carry an agent's label.
    """

    api: str
    runc: str
    info: Mapping[str, Any]
    data_root: Path
    kept_apart: bool
    published: frozenset[HostPort]


@dataclass(frozen=True, slots=True)
class DockerdFacts:
    """The daemon's process: the settings of daemon.json and of its command line.

    `nofile` is what it can grant a container; it and `network`, the name of the network namespace,
    are None when this user may not look.
    """

    settings: Mapping[str, Any]
    nofile: int | None
    network: str | None


@dataclass(frozen=True, slots=True)
class DiskFacts:
    """The file system below a folder."""

    path: str
    total_bytes: int
    free_bytes: int
    total_inodes: int
    free_inodes: int
    read_only: bool


@dataclass(frozen=True, slots=True)
class KernelFacts:
    """Settings and tables of the kernel: `flows` are entries of connection tracking."""

    local_ports: tuple[int, int]
    reserved_ports: frozenset[int]
    bound_ports: frozenset[HostPort]
    flows: int | None
    max_flows: int | None
    clock_synchronised: bool


@dataclass(frozen=True, slots=True)
class ProcessFacts:
    """A process: the bit mask of its effective capabilities, its soft limit of open files.

    `network` names its network namespace, None when this user may not look.
    """

    uid: int
    capabilities: int
    nofile: int
    network: str | None


@dataclass(frozen=True, slots=True)
class AgentFacts:
    """What an agent that serves says; its process is None if this user may not look."""

    version: str
    reconciled: bool
    warnings: tuple[str, ...]
    held_ports: frozenset[HostPort]
    process: ProcessFacts | None


@dataclass(frozen=True, slots=True)
class CertificateFacts:
    """A certificate, the seconds for which it is valid, and its key if that is another file.

    `problem` says why it cannot be used, empty if it can.
    """

    name: str
    left: float
    key: FileFacts | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class Facts:
    """All of them. A file is None where there is none, the engine's disk where it is not known.

    `policy`, `state_format` and `firewall` are what is wrong with them; `firewall` is None where
    it is disabled in the settings.
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
    agent_socket: FileFacts | Unknown | None
    agent: AgentFacts | Unknown
    policy: str | Unknown
    identity: CertificateFacts | Unknown | None
    tls: CertificateFacts | Unknown | None
    firewall: tuple[str, ...] | Unknown | None


class Level(enum.Enum):
    """Severity: `FAIL` breaks a guarantee of the product, `WARN` weakens one, or may."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of a check: what was found and, unless `OK`, what to do."""

    check: str
    level: Level
    found: str
    hint: str = ""


def ok(check: str, found: str) -> Finding:
    """All is well."""
    return Finding(check, Level.OK, found)


def warn(check: str, found: str, hint: str) -> Finding:
    """A weaker guarantee, or an unknown one."""
    return Finding(check, Level.WARN, found, hint)


def bad(check: str, found: str, hint: str) -> Finding:
    """A broken guarantee."""
    return Finding(check, Level.FAIL, found, hint)
