"""Settings: one frozen dataclass, read once from a TOML file.

Every scalar key can be overridden by `TILTYARD_CONTROLPLANE_<KEY>`; an unknown key is an error.
"""

import ipaddress
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from controlplane.domain.errors import ConfigError
from controlplane.domain.names import NAME_RULE, is_name
from controlplane.domain.steps import STEPS
from controlplane.settings.registries import RegistryConfig, read_files
from controlplane.settings.rules import (
    not_an_address,
    optional_address,
    raised,
    repeated,
    split_address,
)
from controlplane.settings.values import Values, read_entries, read_scalar, read_text
from tiltyard.runtime.failpoints import failpoint
from tiltyard.runtime.settings.mistakes import Key, Mistake, SettingsError, in_order, unknown
from tiltyard.runtime.settings.source import Reading, read_source, unknown_variables
from tiltyard.runtime.supervision import Supervision, read_supervision

ENV_PREFIX = "TILTYARD_CONTROLPLANE_"
Network = ipaddress.IPv4Network | ipaddress.IPv6Network
LOG_LEVELS = ("debug", "info", "warning", "error")
LOG_FORMATS = ("logfmt", "json")
NOT_AGENTS = frozenset({"controlplane", "init"})
"""The audit names the product itself by these, where it names an agent by its name."""
MOST_DAYS = 36_500
"""A century; and a number of days that dates can be reckoned with."""
POSITIVE = (
    "start_rate",
    "start_burst",
    "max_waiting_starts",
    "placement_silence",
    "unreachable_after",
    "ended_retention_days",
    "audit_retention_days",
    "max_connections",
    "max_connections_per_address",
    "max_image_bytes",
)
"""Numbers that must be more than 0."""


@dataclass(frozen=True, slots=True)
class AgentConfig:
    """An agent that the file declares: its name, where to dial it, and where it belongs."""

    name: str
    address: str
    region: str
    node_pool: str = "default"


@dataclass(frozen=True, slots=True)
class Config:
    """The settings. Spans are seconds unless the name says otherwise."""

    state_dir: Path = Path("/var/lib/tiltyard-controlplane")
    api_listen: str = "127.0.0.1:8080"
    enrol_listen: str = ":7443"
    metrics_listen: str = "127.0.0.1:7446"
    tls_certificate: str = ""
    tls_key: str = ""
    behind_proxy: tuple[str, ...] = ()
    max_connections: int = 4096
    max_connections_per_address: int = 1024
    environment: str = "production"
    start_timeout: float = 8.0
    start_rate: float = 50.0
    start_burst: int = 200
    max_waiting_starts: int = 10_000
    placement_silence: float = 5.0
    unreachable_after: float = 30.0
    latency_interval: float = 30.0
    lost_after: float = 24 * 3600.0
    ended_retention_days: int = 7
    audit_retention_days: int = 90
    max_image_bytes: int = 20_000_000_000
    log_level: str = "info"
    log_format: Literal["logfmt", "json"] = "logfmt"
    failpoint: str = ""
    regions: tuple[str, ...] = ("local",)
    node_pools: tuple[str, ...] = ("default",)
    host_network_pools: tuple[str, ...] = ()
    registries: tuple[RegistryConfig, ...] = ()
    agents: tuple[AgentConfig, ...] = ()

    def __post_init__(self) -> None:
        if found := tuple(self._mistakes()):
            raise ConfigError(*found)

    def _mistakes(self) -> Iterator[Mistake]:
        if bool(self.tls_certificate) != bool(self.tls_key):
            yield Mistake(("tls_certificate",), "goes together with tls_key", "set both or none")
        addresses = (self.listen_address, self.enrol_address, self.metrics_address)
        for read in (*addresses, self.proxies):
            yield from raised(read)
        try:
            failpoint(self.failpoint, STEPS)
        except ValueError as error:
            yield Mistake(("failpoint",), str(error), "take it out: it is for tests")
        yield from self._scalar_mistakes()
        yield from self._name_mistakes()
        for number, registry in enumerate(self.registries):
            yield from registry.mistakes(("registries", number))
        for number, agent in enumerate(self.agents):
            yield from self._agent_mistakes(agent, ("agents", number))

    def _scalar_mistakes(self) -> Iterator[Mistake]:
        yield from _unless(bool(self.environment), "environment", "must not be empty")
        known = self.log_level in LOG_LEVELS
        yield from _unless(known, "log_level", f"must be one of {', '.join(LOG_LEVELS)}")
        known = self.log_format in LOG_FORMATS
        yield from _unless(known, "log_format", f"must be one of {', '.join(LOG_FORMATS)}")
        yield from _unless(self.start_timeout > 1, "start_timeout", "must be more than 1")
        for key in POSITIVE:
            yield from _unless(getattr(self, key) > 0, key, "must be more than 0")
        for key in ("ended_retention_days", "audit_retention_days"):
            yield from _unless(
                getattr(self, key) <= MOST_DAYS, key, f"must be at most {MOST_DAYS}"
            )
        for key in ("placement_silence", "unreachable_after"):
            span = getattr(self, key)
            if span >= self.lost_after and span == _default(key):
                told = f"must be more than {key}, which is {span:g}"
                yield Mistake(("lost_after",), told, "raise it")
            elif span >= self.lost_after:
                told = f"must be less than lost_after, which is {self.lost_after:g}"
                yield Mistake((key,), told, "lower it, or raise lost_after")
        measured = self.latency_interval == 0 or self.latency_interval >= 1
        yield from _unless(measured, "latency_interval", "must be at least 1, or 0 for never")

    def _name_mistakes(self) -> Iterator[Mistake]:
        registries, agents = enumerate(self.registries), enumerate(self.agents)
        names: tuple[dict[Key, str], ...] = (
            {("regions", number): name for number, name in enumerate(self.regions)},
            {("node_pools", number): name for number, name in enumerate(self.node_pools)},
            {("registries", number, "name"): entry.name for number, entry in registries},
            {("agents", number, "name"): entry.name for number, entry in agents},
        )
        for claimed in names:
            for key, name in claimed.items():
                if not is_name(name):
                    yield Mistake(key, f"{NAME_RULE}, and is {name!r}", "take another")
            yield from repeated(claimed)
        for number, pool in enumerate(self.host_network_pools):
            if pool not in self.node_pools:
                mend = "put it among the node_pools, or take one of them"
                yield Mistake(("host_network_pools", number), f"unknown node pool {pool!r}", mend)
        # Names of hosts do not differ by case.
        addresses: dict[Key, str] = {
            ("registries", number, *place): text.lower()
            for number, registry in enumerate(self.registries)
            for place, text in (
                (("address",), registry.address),
                *((("aliases", at), text) for at, text in enumerate(registry.aliases)),
            )
        }
        yield from repeated(addresses)

    def _agent_mistakes(self, agent: AgentConfig, here: Key) -> Iterator[Mistake]:
        if agent.name in NOT_AGENTS:
            told = f"{agent.name!r} is a name of the product itself"
            yield Mistake((*here, "name"), told, "take another")
        if agent.region not in self.regions:
            told = f"unknown region {agent.region!r}"
            yield Mistake((*here, "region"), told, "put it among the regions, or take one of them")
        if agent.node_pool not in self.node_pools:
            told = f"unknown node pool {agent.node_pool!r}"
            yield Mistake((*here, "node_pool"), told, "put it among the node_pools, or take one")
        if not agent.address.startswith("unix:/"):
            told, mend = "must have the form unix:/path", "hosts elsewhere are enrolled instead"
            yield Mistake((*here, "address"), told, mend)

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
        host, port = split_address("api_listen", self.api_listen)
        try:
            loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        except ValueError:
            raise not_an_address("api_listen", host) from None
        if not (loopback or self.tls_certificate or self.behind_proxy):
            told, mend = f"{host} is not loopback", "set tls_certificate or behind_proxy"
            raise ConfigError(Mistake(("api_listen",), told, mend))
        return host, port

    def enrol_address(self) -> tuple[str, int] | None:
        """Split `enrol_listen` into host and port; the host is empty for every address.

        None where no host can be enrolled.

        Raises:
            ConfigError: It has another form.
        """
        return optional_address("enrol_listen", self.enrol_listen)

    def metrics_address(self) -> tuple[str, int] | None:
        """Split `metrics_listen` as `enrol_address` does; None where nobody may scrape.

        Raises:
            ConfigError: It has another form.
        """
        return optional_address("metrics_listen", self.metrics_listen)

    def proxies(self) -> tuple[Network, ...]:
        """Parse `behind_proxy`: the networks whose X-Forwarded-For is believed.

        Raises:
            ConfigError: An entry is neither an address nor a network.
        """
        try:
            return tuple(ipaddress.ip_network(entry) for entry in self.behind_proxy)
        except ValueError as error:
            told, mend = str(error), "write addresses, or networks such as 10.0.0.0/8"
            raise ConfigError(Mistake(("behind_proxy",), told, mend)) from None

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
            told, mend = f"cannot load {names}: {error}", "both as PEM, the key without a password"
            raise ConfigError(Mistake(("tls_certificate",), told, mend)) from None
        return context


def load_config(path: Path, env: Mapping[str, str] | None = None) -> Config:
    """Read the file, those that it names for registries, the environment and the certificate.

    The certificate only to know that it can be used.

    Raises:
        ConfigError: A file cannot be read, or keys are unknown or their values do not fit.
    """
    _, config, mistakes = read_config(path, env)
    if config is None or mistakes:
        raise ConfigError(*mistakes)
    return config


def read_config(path: Path, env: Mapping[str, str] | None = None) -> Reading[Config]:
    """Read the same, and tell all that is wrong.

    Raises:
        ConfigError: The file cannot be read at all.
    """
    known = {field.name: field.default for field in fields(Config)}
    scalars = {key for key, default in known.items() if not isinstance(default, tuple)}
    environment = os.environ if env is None else env
    try:
        source = read_source(path, environment, ENV_PREFIX, scalars)
    except SettingsError as error:
        raise ConfigError(*error.mistakes) from error
    values = Values()
    for key, value in source.table.items():
        if key in known:
            values.read((key,), _reader(key), value, known[key])
        else:
            values.mistakes.append(unknown((key,), known))
    for key, text in source.environment.items():
        values.read((key,), read_text, text, known[key])
    values.mistakes.extend(unknown_variables(environment, ENV_PREFIX, scalars))
    config = _made(values)
    mistakes = in_order([source.located(each) for each in values.mistakes])
    return Reading(source, config, mistakes)


def load_supervision() -> Supervision:
    """Read what the service manager asks of this process."""
    return read_supervision(os.environ)


def _made(values: Values) -> Config | None:
    """Make the settings; without what is wrong, which is added to the mistakes."""
    for _ in range(2):  # the second time without what the first found
        try:
            config = Config(**values.fitting())
            values.mistakes.extend(raised(config.tls_context))
        except ConfigError as error:
            values.mistakes.extend(error.mistakes)
        else:
            return config
    return None


def _reader(key: str) -> Callable[[Key, object, object], object]:
    if key == "registries":
        return lambda here, value, _: read_entries(
            RegistryConfig, here, value, read_files, RegistryConfig.mistakes
        )
    if key == "agents":
        return lambda here, value, _: read_entries(AgentConfig, here, value)
    return read_scalar


def _unless(holds: bool, key: str, text: str) -> Iterator[Mistake]:
    if not holds:
        mend = f"correct it, or take it out for the default, {_default(key)}"
        yield Mistake((key,), text, mend)


def _default(key: str) -> object:
    return next(field.default for field in fields(Config) if field.name == key)
