"""The agent's settings: one TOML file, every key overridable by environment, read once."""

from __future__ import annotations

import ipaddress
import os
import re
import socket
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)

from agent.network import firewall_rules

LARGEST_SPOOL_BYTES = 101_000_000
"""The largest artifact as it waits on disk: bytes that cannot be packed grow by 0.04 %."""
ENVIRONMENT_PREFIX = "TILTYARD_AGENT_"
SMALLEST_PORT = 1024
DEFAULT_CONFIG = Path("/etc/tiltyard/agent.toml")

_PORT_RANGE = re.compile(r"([0-9]{1,5})-([0-9]{1,5})", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)


class ConfigError(Exception):
    """A setting is unknown or does not fit; the text names it and the mend."""


def _address(value: str) -> str:
    return str(ipaddress.ip_address(value))


def _absolute(value: Path) -> Path:
    if not value.is_absolute():
        raise ValueError("it must be an absolute path")
    return value


def _ipv4(value: str) -> str:
    return str(ipaddress.IPv4Address(value))


def _network(value: str) -> str:
    return str(ipaddress.ip_network(value))


def _service(value: str) -> str:
    firewall_rules.service(value)
    return value


def _prefix(value: str) -> str:
    if not _VARIABLE.fullmatch(value):
        raise ValueError(f"{value!r} cannot begin the name of a variable")
    return value


def _rpc_address(value: str) -> str:
    host, _, port = value.rpartition(":")
    fits = host and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535
    if value and not fits:
        raise ValueError(f"{value!r} has not the form host:port")
    return value


def _split(value: Any) -> Any:
    """Lists come from the environment as words parted by commas."""
    return [word for word in value.split(",") if word] if isinstance(value, str) else value


def default_public_address() -> str:
    """The address of the default route; ValueError when there is none."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            # Connecting a datagram socket sends nothing; it only asks the routing table.
            probe.connect(("192.0.2.1", 9))
        except OSError:
            raise ValueError("public_address must be set: there is no default route") from None
        return str(probe.getsockname()[0])


Absolute = Annotated[Path, AfterValidator(_absolute)]
Address = Annotated[str, AfterValidator(_address)]


class AgentConfig(BaseModel):
    """The settings of one agent; docs/operations.md says what each is for.

    `cpu` in cores, `ram` and `disk_reserve` in MiB, all spans in seconds unless the name says
    hours or days.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False)

    state_dir: Absolute = Path("/var/lib/tiltyard-agent")
    socket: Absolute = Path("/run/tiltyard/agent.sock")
    rpc_listen: Annotated[str, AfterValidator(_rpc_address)] = ""
    rpc_address: Annotated[str, AfterValidator(_rpc_address)] = ""
    docker_socket: Absolute = Path("/run/docker.sock")
    public_address: Address = Field(default_factory=default_public_address)
    bind_address: Address = "0.0.0.0"  # noqa: S104 - games are played from outside
    latency_addresses: Annotated[
        tuple[Annotated[str, AfterValidator(_ipv4)], ...], BeforeValidator(_split)
    ] = ()
    port_range: str = "20000-30000"
    env_prefixes: Annotated[
        tuple[Annotated[str, AfterValidator(_prefix)], ...], BeforeValidator(_split)
    ] = ("TILTYARD",)
    firewall_bridges: Annotated[
        tuple[Annotated[str, AfterValidator(firewall_rules.checked_bridge)], ...],
        BeforeValidator(_split),
    ] = ("docker0", "tiltyard0")
    firewall_blocked: Annotated[
        tuple[Annotated[str, AfterValidator(_network)], ...], BeforeValidator(_split)
    ] = ()
    firewall_allowed: Annotated[
        tuple[Annotated[str, AfterValidator(_service)], ...], BeforeValidator(_split)
    ] = ()
    cpu: Annotated[float, Field(gt=0)] | None = None
    ram: Annotated[int, Field(gt=0)] | None = None
    gpus: Annotated[tuple[str, ...], BeforeValidator(_split)] = ()
    policy: Absolute | None = None
    max_sessions: Annotated[int, Field(ge=1, le=1000)] = 1000
    start_slots: Annotated[int, Field(ge=1)] = Field(
        default_factory=lambda: 2 * (os.cpu_count() or 1)
    )
    stop_grace: Annotated[float, Field(ge=0, le=3600)] = 10.0
    disk_reserve: Annotated[int, Field(ge=0)] = 2048
    artifact_spool_bytes: Annotated[int, Field(ge=LARGEST_SPOOL_BYTES)] = 1_000_000_000
    container_retention_hours: Annotated[float, Field(ge=0)] = 4.0
    log_retention_days: Annotated[float, Field(ge=0)] = 7.0
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    failpoint: str = ""

    @model_validator(mode="after")
    def _fits(self) -> AgentConfig:
        self.ports()
        if not self.env_prefixes:
            raise ValueError("env_prefixes must name at least one prefix")
        if ipaddress.ip_address(self.public_address).is_unspecified:
            raise ValueError("public_address must be an address that players can reach")
        return self

    def ports(self) -> tuple[int, int]:
        """The first and the last host port; ValueError when it is no range."""
        found = _PORT_RANGE.fullmatch(self.port_range)
        first, last = (int(found[1]), int(found[2])) if found else (0, 0)
        if not SMALLEST_PORT <= first <= last <= 65535:
            raise ValueError(f"port_range must be FIRST-LAST within {SMALLEST_PORT}-65535")
        return first, last

    def announced(self) -> str:
        """Where the control plane dials this host, once it is enrolled."""
        public = self.public_address
        host = f"[{public}]" if ":" in public else public
        return self.rpc_address or f"{host}:{self.rpc_listen.rpartition(':')[2]}"

    def firewall(self) -> firewall_rules.Plan:
        """What sessions may reach."""
        return firewall_rules.Plan(
            bridges=self.firewall_bridges,
            blocked=tuple(map(ipaddress.ip_network, self.firewall_blocked)),
            allowed=tuple(map(firewall_rules.service, self.firewall_allowed)),
            public_address=ipaddress.ip_address(self.public_address),
            ports=self.ports(),
        )

    def pinged(self) -> tuple[str, ...]:
        """The addresses for latency measurement: as set, else the public one if it is IPv4."""
        public = ipaddress.ip_address(self.public_address)
        return self.latency_addresses or ((str(public),) if public.version == 4 else ())


def load_config(path: Path | None, environment: Mapping[str, str] = os.environ) -> AgentConfig:
    """Read the settings; raises ConfigError. Without a path the defaults and the environment."""
    settings: dict[str, Any] = {}
    if path is not None:
        try:
            settings = tomllib.loads(path.read_text("utf-8"))
        except (OSError, ValueError) as error:
            raise ConfigError(f"cannot read {path}: {error}") from error
    for key in AgentConfig.model_fields:
        variable = ENVIRONMENT_PREFIX + key.upper()
        if variable in environment:
            settings[key] = environment[variable]
    try:
        return AgentConfig.model_validate(settings)
    except ValidationError as error:
        found = [
            f"{'.'.join(map(str, one['loc'])) or 'settings'}: {one['msg']}"
            for one in error.errors()
        ]
        raise ConfigError("; ".join(found)) from error


class Supervision(NamedTuple):
    """Where a service manager wants to be told how the agent is; nowhere without a `socket`.

    `watchdog` is after how many seconds of silence it takes the agent for hung.
    """

    socket: str = ""
    watchdog: float | None = None


def load_supervision(environment: Mapping[str, str] = os.environ) -> Supervision:
    """What systemd tells a service of itself; see sd_notify(3) and sd_watchdog_enabled(3)."""
    asked = environment.get("WATCHDOG_USEC", "")
    microseconds = int(asked) if asked.isdecimal() else 0
    is_for_us = environment.get("WATCHDOG_PID") in {None, str(os.getpid())}
    return Supervision(
        socket=environment.get("NOTIFY_SOCKET", ""),
        watchdog=microseconds / 10**6 if microseconds and is_for_us else None,
    )
