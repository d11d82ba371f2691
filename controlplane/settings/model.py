"""The control plane's settings: one TOML file; the environment can override each key."""

import ipaddress
import os
import ssl
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, StrictBool

from controlplane.domain.addresses import Network
from controlplane.domain.hosts.agents import Agent
from controlplane.domain.names import NAME_RULE, is_name
from controlplane.domain.steps import STEPS
from controlplane.settings.defaults import API_LISTEN, STATE_DIR
from controlplane.settings.registries import RegistryConfig
from tiltyard.runtime.failpoints import failpoint
from tiltyard.runtime.settings import (
    Key,
    Mistake,
    NetworkText,
    OwnFolder,
    Settings,
    SettingsError,
    Words,
    both_or_none,
    checked,
    host_and_port,
    read_settings,
)

ENV_PREFIX = "TILTYARD_CONTROLPLANE_"
NOT_AGENTS = frozenset({"controlplane", "init"})
"""Reserved agent names: the audit uses them for the product itself."""
WIDEST_PROXIES = 8  # Length of the prefix, of a private network
_WIDEST_PUBLIC = {4: 12, 6: 28}
"""By IP version: as wide as a network of a provider of proxies."""
MOST_DAYS = 36_500  # A century; larger values would overflow dates


def _listen(value: str) -> None:
    host, _ = host_and_port(value)
    try:
        _ = host == "localhost" or ipaddress.ip_address(host)
    except ValueError:
        text = f"{host!r} is not an address; write one of this machine, not its name"
        raise ValueError(text) from None


def _optional_listen(value: str) -> None:
    if value.startswith(":"):
        host_and_port(value)
    elif value:
        _listen(value)


def _never_or_seconds(value: float) -> None:
    if 0 < value < 1:
        raise ValueError("must be at least 1, or 0 for never")


Count = Annotated[int, Field(gt=0)]
Days = Annotated[int, Field(gt=0, le=MOST_DAYS)]
DaysOrNone = Annotated[int, Field(ge=0, le=MOST_DAYS)]
Span = Annotated[float, Field(gt=0)]
OptionalListen = Annotated[str, checked(_optional_listen)]


class AgentConfig(Settings):
    """An agent declared in the settings file."""

    name: str
    address: str
    region: str
    node_pool: str = "default"

    @property
    def agent(self) -> Agent:
        """The declared agent."""
        return Agent(self.name, self.address, self.region, self.node_pool)


def _narrow(text: str) -> None:
    """Refuse networks with more than proxies: any client in them could forge its address."""
    network = ipaddress.ip_network(text)
    widest = _WIDEST_PUBLIC[network.version] if network.is_global else WIDEST_PROXIES
    if network.prefixlen < widest:
        kind = "a public network" if network.is_global else "a network"
        raise ValueError(
            f"{network} must be at most a /{widest}, as {kind}: any client in it can forge the "
            "addresses of callers, and has no limit of connections per address"
        )


class Config(Settings):
    """The control plane's settings, documented in docs/operations.md. Durations are seconds."""

    state_dir: OwnFolder = STATE_DIR
    api_listen: Annotated[str, checked(_listen)] = API_LISTEN
    enrol_listen: OptionalListen = ":7443"
    metrics_listen: OptionalListen = "127.0.0.1:7446"
    tls_certificate: str = ""
    tls_key: str = ""
    behind_proxy: Words[Annotated[NetworkText, checked(_narrow)]] = ()
    max_connections: Count = 4096
    max_connections_per_address: Count = 1024
    max_event_streams: Count = 3000
    max_event_streams_per_token: Count = 100
    environment: Annotated[str, Field(min_length=1)] = "production"
    start_timeout: Annotated[float, Field(gt=1)] = 8.0
    start_rate: Span = 50.0
    start_burst: Count = 200
    max_waiting_starts: Count = 10_000
    unresponsive_after: Span = 5.0
    unreachable_after: Span = 30.0
    latency_interval: Annotated[float, Field(ge=0), checked(_never_or_seconds)] = 30.0
    lost_after: float = 24 * 3600.0
    ended_retention_days: Days = 7
    audit_retention_days: Days = 90
    player_events_retention_days: DaysOrNone = 7
    max_ended_sessions: Count = 10_000
    max_audit_entries: Count = 1_000_000
    webhook_networks: Words[NetworkText] = ()
    webhook_plain_http: StrictBool = False
    max_image_bytes: Count = 20_000_000_000
    log_level: Literal["debug", "info", "warning", "error"] = "info"
    log_format: Literal["logfmt", "json"] = "logfmt"
    failpoint: Annotated[str, checked(lambda value: failpoint(value, STEPS))] = ""
    regions: Words[str] = ("local",)
    node_pools: Words[str] = ("default",)
    host_network_pools: Words[str] = ()
    registries: tuple[RegistryConfig, ...] = ()
    agents: tuple[AgentConfig, ...] = ()

    def mistakes(self) -> Iterator[Mistake]:
        """Check names, references and the certificate. Blocks."""
        certificate = {"tls_certificate": self.tls_certificate, "tls_key": self.tls_key}
        yield from both_or_none((), **certificate)
        try:
            if all(certificate.values()):
                self.tls_context()
        except SettingsError as error:
            yield from error.mistakes
        host, _ = host_and_port(self.api_listen)
        loopback = host == "localhost" or ipaddress.ip_address(host).is_loopback
        # Tokens must not cross a network unencrypted.
        if not (loopback or self.tls_certificate or self.behind_proxy):
            text = f"{host} is not loopback; set tls_certificate or behind_proxy"
            yield Mistake(("api_listen",), text)
        for key in ("unresponsive_after", "unreachable_after"):
            if (span := getattr(self, key)) >= self.lost_after:
                yield Mistake(("lost_after",), f"must be more than {key}, which is {span:g}")
        yield from self._name_mistakes()
        for number, registry in enumerate(self.registries):
            login = {"username": registry.username, "password_file": registry.password}
            yield from both_or_none(("registries", number), **login)
        for number, agent in enumerate(self.agents):
            yield from self._agent_mistakes(agent, ("agents", number))

    def _name_mistakes(self) -> Iterator[Mistake]:
        names = {
            "regions": self.regions,
            "node_pools": self.node_pools,
            "registries": [registry.name for registry in self.registries],
            "agents": [agent.name for agent in self.agents],
        }
        for table, claimed in names.items():
            for name in claimed:
                if not is_name(name):
                    yield Mistake((table,), f"{NAME_RULE}, and is {name!r}")
            yield from _duplicates(table, claimed)
        for pool in self.host_network_pools:
            if pool not in self.node_pools:
                yield Mistake(("host_network_pools",), f"unknown node pool {pool!r}")
        # Host names are case-insensitive.
        yield from _duplicates(
            "registries",
            [
                name.lower()
                for registry in self.registries
                for name in (registry.address, *registry.aliases)
            ],
        )

    def _agent_mistakes(self, agent: AgentConfig, here: Key) -> Iterator[Mistake]:
        if agent.name in NOT_AGENTS:
            text = f"{agent.name!r} is a reserved name"
            yield Mistake((*here, "name"), text)
        if agent.region not in self.regions:
            yield Mistake((*here, "region"), f"unknown region {agent.region!r}")
        if agent.node_pool not in self.node_pools:
            yield Mistake((*here, "node_pool"), f"unknown node pool {agent.node_pool!r}")
        if not agent.address.startswith("unix:/"):
            text = "must have the form unix:/path; hosts elsewhere are enrolled instead"
            yield Mistake((*here, "address"), text)

    @property
    def database(self) -> Path:
        """Path of the database."""
        return self.state_dir / "controlplane.db"

    def proxies(self) -> tuple[Network, ...]:
        """Parse `behind_proxy`: the networks whose X-Forwarded-For is trusted."""
        return tuple(map(ipaddress.ip_network, self.behind_proxy))

    def networks_of_webhooks(self) -> tuple[Network, ...]:
        """Parse `webhook_networks`: those that webhooks may connect to, though not public."""
        return tuple(map(ipaddress.ip_network, self.webhook_networks))

    def tls_context(self) -> ssl.SSLContext | None:
        """Load certificate and key; None if they are not set.

        Raises:
            SettingsError: Unreadable, or not a pair.
        """
        if not self.tls_certificate:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.set_alpn_protocols(["http/1.1"])
        try:
            # An empty password makes an encrypted key fail instead of prompting on the terminal.
            context.load_cert_chain(self.tls_certificate, self.tls_key, password="")
        except (OSError, ValueError) as error:
            names = f"{self.tls_certificate} with {self.tls_key}"
            raise SettingsError(
                Mistake(("tls_certificate",), f"cannot load {names}: {error}")
            ) from None
        return context


def load_config(path: Path, env: Mapping[str, str] = os.environ) -> Config:
    """Read the settings and the files that they refer to. Blocks.

    Raises:
        SettingsError: With all mistakes.
    """
    return read_settings(Config, path, env, ENV_PREFIX)


def _duplicates(table: str, names: Sequence[str]) -> Iterator[Mistake]:
    for name in sorted({name for name in names if names.count(name) > 1}):
        yield Mistake((table,), f"{name!r} is listed twice")
