"""Settings: one frozen dataclass, read once from a TOML file.

Every scalar key can be overridden by `TILTYARD_CONTROLPLANE_<KEY>`; an unknown key is an error.
"""

import ipaddress
import os
import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar

from controlplane.errors import ConfigError
from controlplane.failpoints import failpoint
from controlplane.names import NAME_RULE, is_name
from controlplane.registry_settings import RegistryConfig, read_files

ENV_PREFIX = "TILTYARD_CONTROLPLANE_"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOG_LEVELS = ("debug", "info", "warning", "error")
NOT_AGENTS = frozenset({"controlplane", "init"})
"""The audit names the product itself by these, where it names an agent by its name."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """An agent that the file declares: its name, where to dial it, and where it belongs."""

    name: str
    address: str
    region: str
    node_pool: str = "default"


_Entry = TypeVar("_Entry", RegistryConfig, AgentConfig)


@dataclass(frozen=True, slots=True)
class Config:
    """The settings. Spans are seconds unless the name says otherwise."""

    state_dir: Path = Path("/var/lib/tiltyard-controlplane")
    api_listen: str = "127.0.0.1:8080"
    enrol_listen: str = ":7443"
    tls_certificate: str = ""
    tls_key: str = ""
    behind_proxy: tuple[str, ...] = ()
    max_connections: int = 4096
    max_connections_per_address: int = 1024
    environment: str = "production"
    start_timeout: float = 8.0
    start_rate: float = 50.0
    start_burst: int = 200
    placement_silence: float = 5.0
    unreachable_after: float = 30.0
    ended_retention_days: int = 7
    audit_retention_days: int = 90
    max_image_bytes: int = 20_000_000_000
    log_level: str = "info"
    failpoint: str = ""
    regions: tuple[str, ...] = ("local",)
    node_pools: tuple[str, ...] = ("default",)
    registries: tuple[RegistryConfig, ...] = ()
    agents: tuple[AgentConfig, ...] = ()

    def __post_init__(self) -> None:
        both = bool(self.tls_certificate) == bool(self.tls_key)
        _check(both, "tls_certificate", "goes together with tls_key: set both or none")
        self.listen_address()
        self.enrol_address()
        self.proxies()
        _check(bool(self.environment), "environment", "must not be empty")
        _check(self.log_level in LOG_LEVELS, "log_level", f"must be one of {LOG_LEVELS}")
        _check(self.start_timeout > 1, "start_timeout", "must be more than 1")
        positive = ("start_rate", "placement_silence", "unreachable_after", "start_burst")
        connections = ("max_connections", "max_connections_per_address")
        retention = ("ended_retention_days", "audit_retention_days")
        for name in (*positive, *retention, *connections, "max_image_bytes"):
            _check(getattr(self, name) > 0, name, "must be more than 0")
        self._check_failpoint()
        self._check_names()
        for registry in self.registries:
            registry.check()
        for agent in self.agents:
            where = f"agents.{agent.name}"
            product = agent.name in NOT_AGENTS
            _check(not product, where, "is a name of the product itself: take another")
            _check(agent.region in self.regions, where, f"unknown region {agent.region!r}")
            known = agent.node_pool in self.node_pools
            _check(known, where, f"unknown node pool {agent.node_pool!r}")
            dialable = agent.address.startswith("unix:/")
            _check(dialable, where, "address must have the form unix:/path")

    def _check_failpoint(self) -> None:
        try:
            failpoint(self.failpoint)
        except ValueError as error:
            raise ConfigError(f"failpoint: {error}") from None

    def _check_names(self) -> None:
        names = {
            "regions": self.regions,
            "node_pools": self.node_pools,
            "registries.name": tuple(registry.name for registry in self.registries),
            "agents.name": tuple(agent.name for agent in self.agents),
        }
        for key, values in names.items():
            _check(all(map(is_name, values)), key, NAME_RULE)
            _check_unrepeated(key, values)
        # Names of hosts do not differ by case.
        claimed = (text.lower() for r in self.registries for text in (r.address, *r.aliases))
        _check_unrepeated("registries", tuple(claimed))

    @property
    def database(self) -> Path:
        """The database's file."""
        return self.state_dir / "controlplane.db"

    def listen_address(self) -> tuple[str, int]:
        """Split `api_listen` into host and port.

        Tokens must not cross a network in clear: others than loopback are served with TLS, or
        behind a proxy that ends it.

        Raises:
            ConfigError: It has another form or names an address that others can reach.
        """
        host, port = _split("api_listen", self.api_listen)
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            raise ConfigError(f"api_listen: {host!r} is not an address") from None
        served = loopback or bool(self.tls_certificate) or bool(self.behind_proxy)
        _check(
            served, "api_listen", f"{host} is not loopback: set tls_certificate or behind_proxy"
        )
        return host, port

    def enrol_address(self) -> tuple[str, int] | None:
        """Split `enrol_listen` into host and port; the host is empty for every address.

        None where no host can be enrolled.

        Raises:
            ConfigError: It has another form.
        """
        if not self.enrol_listen:
            return None
        host, port = _split("enrol_listen", self.enrol_listen)
        try:
            _ = host in {"", "localhost"} or ipaddress.ip_address(host)
        except ValueError:
            raise ConfigError(f"enrol_listen: {host!r} is not an address") from None
        return host, port

    def proxies(self) -> tuple[Network, ...]:
        """Parse `behind_proxy`: the networks whose X-Forwarded-For is believed.

        Raises:
            ConfigError: An entry is neither an address nor a network.
        """
        try:
            return tuple(ipaddress.ip_network(entry) for entry in self.behind_proxy)
        except ValueError as error:
            raise ConfigError(f"behind_proxy: {error}") from None

    def tls_context(self) -> ssl.SSLContext | None:
        """Load certificate and key; None without them.

        Raises:
            ConfigError: They cannot be read or do not belong together.
        """
        if not self.tls_certificate:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # With the empty password a key that needs one fails instead of asking the terminal.
            context.load_cert_chain(self.tls_certificate, self.tls_key, password="")
        except (OSError, ValueError) as error:
            names = f"{self.tls_certificate} with {self.tls_key}"
            raise ConfigError(f"tls_certificate: cannot load {names}: {error}") from None
        return context


def _split(key: str, address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    _check(port.isascii() and port.isdigit(), key, "must have the form host:port")
    _check(int(port) <= 65535, key, "the port must be at most 65535")
    return host.removeprefix("[").removesuffix("]"), int(port)


def load_config(path: Path, env: Mapping[str, str] | None = None) -> Config:
    """Read the file, those that it names for registries, the environment and the certificate.

    The certificate only to know that it can be used.

    Raises:
        ConfigError: A file cannot be read, or a key is unknown or its value does not fit.
    """
    try:
        table = tomllib.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise ConfigError(f"cannot read {path}: because {error}") from error
    environment = os.environ if env is None else env
    known = {f.name: f for f in fields(Config)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key not in known:
            raise ConfigError(f"unknown key {key!r}")
        values[key] = _read(key, value, known[key].default)
    values.update(_from_environment(known, environment))
    config = Config(**values)
    config.tls_context()
    return config


def _from_environment(
    known: Mapping[str, Field[Any]], environment: Mapping[str, str]
) -> dict[str, Any]:
    values: dict[str, Any] = {}
    for variable in sorted(v for v in environment if v.startswith(ENV_PREFIX)):
        key = variable.removeprefix(ENV_PREFIX).lower()
        if key not in known or isinstance(known[key].default, tuple):
            raise ConfigError(f"unknown key {variable!r} in the environment")
        text, default = environment[variable], known[key].default
        try:
            values[key] = _parse(text, default)
        except ValueError:
            raise ConfigError(f"{variable}: must be {_kind(default)}") from None
    return values


def _parse(text: str, default: object) -> object:
    if isinstance(default, int):
        return int(text)
    if isinstance(default, float):
        return float(text)
    return Path(text) if isinstance(default, Path) else text


def _read(key: str, value: object, default: object) -> object:
    if key == "registries":
        return tuple(_registry(f"{key}[{i}]", v) for i, v in _items(key, value))
    if key == "agents":
        return tuple(_entry(AgentConfig, f"{key}[{i}]", v) for i, v in _items(key, value))
    if isinstance(default, tuple):
        return _strings(key, value)
    if isinstance(default, Path) and isinstance(value, str):
        return Path(value)
    if isinstance(default, float) and type(value) in {int, float}:
        return float(str(value))
    if type(value) is not type(default):
        raise ConfigError(f"{key}: must be {_kind(default)}")
    return value


def _registry(where: str, value: object) -> RegistryConfig:
    table = read_files(where, value) if isinstance(value, dict) else value
    return _entry(RegistryConfig, where, table)


def _entry(kind: type[_Entry], where: str, value: object) -> _Entry:
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: must be a table")
    known = {f.name: f for f in fields(kind)}
    values: dict[str, Any] = {}
    for key, item in value.items():
        if key not in known:
            raise ConfigError(f"unknown key {where + '.' + key!r}")
        values[key] = _item(f"{where}.{key}", item, known[key].default)
    for key, field in known.items():
        _check(key in values or field.default is not MISSING, f"{where}.{key}", "is missing")
    return kind(**values)


def _items(key: str, value: object) -> list[tuple[int, object]]:
    if not isinstance(value, list):
        raise ConfigError(f"{key}: must be a list")
    return list(enumerate(value))


def _item(key: str, value: object, default: object) -> object:
    if isinstance(default, bool):
        _check(isinstance(value, bool), key, "must be true or false")
        return value
    return _strings(key, value) if isinstance(default, tuple) else _string(key, value)


def _string(key: str, value: object) -> str:
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{key}: must be a string")
    return value


def _strings(key: str, value: object) -> tuple[str, ...]:
    items = [item for _, item in _items(key, value)]
    if not all(isinstance(item, str) and item for item in items):
        raise ConfigError(f"{key}: must be a list of strings")
    return tuple(str(item) for item in items)


def _kind(default: object) -> str:
    names = {int: "a whole number", float: "a number"}
    return names.get(type(default), "a string")


def _check_unrepeated(key: str, values: tuple[str, ...]) -> None:
    for number, value in enumerate(values):
        _check(value not in values[:number], key, f"{value!r} is there twice")


def _check(holds: bool, key: str, text: str) -> None:
    if not holds:
        raise ConfigError(f"{key}: {text}")
