"""The agent's settings: a TOML file, overridden by environment variables."""

import ipaddress
import os
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BeforeValidator, Field

from agent.domain.kept import preparation
from agent.domain.paths import AGENT_SOCKET
from agent.domain.steps import STEPS
from agent.network import firewall_rules
from agent.network.tls_certificate import CertificateFiles
from tiltyard.contract import MAX_PIDS, MEBI, MIN_PIDS
from tiltyard.runtime.failpoints import failpoint
from tiltyard.runtime.settings import (
    Absolute,
    Mistake,
    NetworkText,
    OwnFolder,
    Settings,
    Words,
    both_or_none,
    checked,
    host_and_port,
    read_settings,
)

LARGEST_SPOOL_BYTES = 101_000_000
"""The largest artifact on disk: incompressible data grows by 0.04 %."""
ENVIRONMENT_PREFIX = "TILTYARD_AGENT_"
SMALLEST_PORT = 1024
MOST_CORES = 100_000
MOST_MEBIBYTES = 1 << 30
"""Above any host, in the range of the wire format."""

_DNS_PORT = 53
_LINK_LOCAL = (ipaddress.ip_network("fe80::/10"),)
_RESERVED_PREFIXES = frozenset({"DOCKER", "GLIBC", "LD", "MALLOC"})
"""Prefixes that Docker's clients, the C library and the loader of programs interpret."""
_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)


def _listener(value: str) -> None:
    if value and not all(host_and_port(value)):
        raise ValueError("must have the form host:port")


def _not_reserved(value: str) -> None:
    if value in _RESERVED_PREFIXES:
        raise ValueError(f"{value}_… are variables of other programs")


def _allowed(value: str) -> None:
    service = firewall_rules.service(value)
    networks = (*firewall_rules.METADATA, *_LINK_LOCAL)
    is_metadata = any(service.address in network for network in networks)
    if is_metadata and service.port != _DNS_PORT:
        raise ValueError(
            f"{service.address} may be a metadata service, which has credentials of the host: "
            f"only port {_DNS_PORT} can be allowed there"
        )


def _reachable(value: str) -> None:
    if ipaddress.ip_address(value).is_unspecified:
        raise ValueError("must be an address that players can reach")


def ports_of(text: str) -> tuple[int, int]:
    """The first and last port of a range; raises ValueError."""
    found = _PORT_RANGE.fullmatch(text)
    first, last = (int(found[1]), int(found[2])) if found else (0, 0)
    if not SMALLEST_PORT <= first <= last <= 65535:
        raise ValueError(f"must be FIRST-LAST within {SMALLEST_PORT}-65535")
    return first, last


def _memory_bytes() -> int:
    """The memory of this machine."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


class NoRouteError(Exception):
    """There is no default route now, so that the default of `public_address` is unknown.

    No ValueError: the settings are valid, and the same command can succeed later.
    """


def default_public_address() -> str:
    """The source address of the default route; raises NoRouteError if there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a UDP socket sends nothing, it only looks up the route.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            raise NoRouteError(
                "public_address is not set, and there is no default route"
            ) from None
        return str(probe.getsockname()[0])


Address = Annotated[str, AfterValidator(lambda value: str(ipaddress.ip_address(value)))]
Listener = Annotated[str, checked(_listener)]
Prefix = Annotated[str, Field(pattern="^[A-Za-z_][A-Za-z0-9_]*$"), checked(_not_reserved)]
Bridge = Annotated[str, Field(pattern="^[A-Za-z0-9_.-]{1,15}$")]


class AgentConfig(Settings):
    """The agent's settings, described in docs/operations.md.

    `cpu` in cores; `ram`, `disk_reserve` and `session_disk` in MiB; durations in seconds unless
    named otherwise.
    """

    state_dir: OwnFolder = Path("/var/lib/tiltyard-agent")
    socket: Absolute = AGENT_SOCKET
    rpc_listen: Listener = ""
    rpc_address: Listener = ""
    metrics_listen: Listener = "127.0.0.1:7445"
    docker_socket: Absolute = Path("/run/docker.sock")
    public_address: Annotated[
        Address,
        BeforeValidator(lambda value: value or default_public_address()),
        checked(_reachable),
    ] = Field(default="", validate_default=True)
    bind_address: Address = "0.0.0.0"  # noqa: S104 - games are played from outside
    latency_addresses: Words[Annotated[str, checked(ipaddress.IPv4Address)]] = ()
    port_range: Annotated[str, checked(ports_of)] = "20000-30000"
    env_prefixes: Annotated[Words[Prefix], Field(min_length=1)] = ("TILTYARD",)
    firewall_bridges: Words[Bridge] = ("docker0", "tiltyard0")
    firewall_blocked: Words[NetworkText] = ()
    firewall_allowed: Words[Annotated[str, checked(_allowed)]] = ()
    cpu: Annotated[float, Field(gt=0, le=MOST_CORES)] | None = None
    ram: Annotated[int, Field(gt=0, le=MOST_MEBIBYTES)] | None = None
    gpus: Words[str] = ()
    policy: Absolute | None = None
    tls_certificate: Absolute | None = None
    tls_key: Absolute | None = None
    tls_max_connections: Annotated[int, Field(ge=1)] = 4096
    tls_max_connections_per_port: Annotated[int, Field(ge=1)] = 1024
    tls_max_connections_per_address: Annotated[int, Field(ge=1)] = 128
    max_sessions: Annotated[int, Field(ge=1, le=1000)] = 1000
    start_slots: Annotated[int, Field(ge=1, le=MOST_CORES)] = Field(
        default_factory=lambda: 4 * (os.cpu_count() or 1)
    )
    prepared: Annotated[int, Field(ge=0, le=1000)] = Field(
        default_factory=lambda: preparation.default_limit(_memory_bytes())
    )
    stop_grace: Annotated[float, Field(ge=0, le=3600)] = 10.0
    max_stop_grace: Annotated[float, Field(ge=0, le=3600)] = 60.0
    disk_reserve: Annotated[int, Field(ge=0)] = 2048
    session_disk: Annotated[int, Field(ge=0, le=MOST_MEBIBYTES)] = 10_240
    session_pids: Annotated[int, Field(ge=MIN_PIDS, le=MAX_PIDS)] = 512
    session_log_lines: Annotated[int, Field(ge=0)] = 5000
    session_log_bytes: Annotated[int, Field(ge=0)] = 8 * MEBI
    host_log_lines: Annotated[int, Field(ge=0)] = 100_000
    host_log_bytes: Annotated[int, Field(ge=0)] = 128 * MEBI
    artifact_spool_bytes: Annotated[int, Field(ge=LARGEST_SPOOL_BYTES)] = 1_000_000_000
    container_retention_hours: Annotated[float, Field(ge=0)] = 4.0
    log_retention_days: Annotated[float, Field(ge=0)] = 7.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["logfmt", "json"] = "logfmt"
    failpoint: Annotated[str, checked(lambda value: failpoint(value, STEPS))] = ""

    def mistakes(self) -> Iterator[Mistake]:
        """Check keys that depend on each other, and listeners against `port_range`."""
        yield from both_or_none((), tls_certificate=self.tls_certificate, tls_key=self.tls_key)
        first, last = self.ports()
        for key in ("rpc_listen", "metrics_listen"):
            if (address := getattr(self, key)) and first <= host_and_port(address)[1] <= last:
                yield Mistake((key,), f"its port is within port_range, {self.port_range}")

    def ports(self) -> tuple[int, int]:
        """The first and last host port."""
        return ports_of(self.port_range)

    def announced(self) -> str:
        """The address at which the control plane calls this host once it is enrolled."""
        public = self.public_address
        host = f"[{public}]" if ":" in public else public
        return self.rpc_address or f"{host}:{self.rpc_listen.rpartition(':')[2]}"

    def certificate_files(self) -> CertificateFiles | None:
        """The certificate of TLS ports, if set."""
        if self.tls_certificate is None or self.tls_key is None:
            return None
        return CertificateFiles(self.tls_certificate, self.tls_key)

    def firewall(self) -> firewall_rules.Plan:
        """Firewall rules of sessions."""
        return firewall_rules.Plan(
            bridges=self.firewall_bridges,
            blocked=tuple(map(ipaddress.ip_network, self.firewall_blocked)),
            allowed=tuple(map(firewall_rules.service, self.firewall_allowed)),
            public_address=ipaddress.ip_address(self.public_address),
            ports=self.ports(),
        )

    def pinged(self) -> tuple[str, ...]:
        """Addresses for latency measurement; by default the public one if it is IPv4."""
        public = ipaddress.ip_address(self.public_address)
        return self.latency_addresses or ((str(public),) if public.version == 4 else ())


def load_config(path: Path | None, environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """Read the settings; without a path, the environment only. Raises SettingsError; blocks."""
    return read_settings(AgentConfig, path, environment, ENVIRONMENT_PREFIX)
