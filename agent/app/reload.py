"""Settings that change while the agent runs: read again, and handed to the parts they are for.

What is held stays held: sessions run on with what they were started with, and what the host lends
counts for those that come. Everything else waits for a restart, which disturbs no session either.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

from agent.domain.session import MEBIBYTE, Resources
from agent.images.images import Images
from agent.network.firewall import Firewall
from agent.network.firewall_watch import FirewallWatch
from agent.sessions.adoption import Reconciler
from agent.sessions.host import Host
from agent.settings.model import AgentConfig, load_config
from agent.settings.policy import Policy, load_policy
from agent.state.retention import Rules

RELOADABLE = frozenset(
    {
        "latency_addresses",
        "firewall_blocked",
        "firewall_allowed",
        "cpu",
        "ram",
        "policy",
        "tls_certificate",
        "tls_key",
        "max_sessions",
        "start_slots",
        "stop_grace",
        "disk_reserve",
        "session_disk",
        "container_retention_hours",
        "log_retention_days",
        "log_level",
    }
)
"""Keys that `systemctl reload` takes in; the table of the settings says the same."""


class Settings(NamedTuple):
    """The settings, and what the policy's file said when they were read."""

    config: AgentConfig
    policy: Policy

    def values(self) -> Mapping[str, Any]:
        """Every key; a policy that says something else under the same name has changed, too."""
        return {**dict(self.config), "policy": (self.config.policy, self.policy)}

    def merged(self, changes: Mapping[str, Any]) -> Settings:
        """These with some keys of others."""
        found = dict(changes)
        path, policy = found.pop("policy", (self.config.policy, self.policy))
        return Settings(self.config.model_copy(update={**found, "policy": path}), policy)


def load_settings(path: Path | None) -> Settings:
    """Read the settings and the policy; raises SettingsError with all that is wrong. Blocks."""
    config = load_config(path)
    return Settings(config, load_policy(config.policy))


def rules_of(config: AgentConfig) -> Rules:
    """How long what has ended is kept."""
    return Rules(
        container_seconds=config.container_retention_hours * 3600,
        log_seconds=config.log_retention_days * 86400,
    )


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts of an agent that take settings while it runs.

    `lent` reckons what settings lend on this host.
    """

    host: Host
    images: Images
    reconciler: Reconciler
    firewall: FirewallWatch
    lent: Callable[[AgentConfig], Resources]

    def take(self, settings: Settings) -> None:
        """Go by these from now on."""
        config, host = settings.config, self.host
        lent, firewall = self.lent(config), Firewall(config.firewall())  # all or nothing
        logging.getLogger().setLevel(config.log_level.upper())
        host.settings = replace(
            host.settings,
            stop_grace=config.stop_grace,
            session_disk_bytes=config.session_disk * MEBIBYTE,
        )
        host.policy = self.images.policy = settings.policy
        host.capacity.max_sessions = config.max_sessions
        host.capacity.lend(lent)
        host.disks.reserve_bytes = config.disk_reserve * MEBIBYTE
        host.start_slots.resize(config.start_slots)
        host.tls_ports.serve_with(config.certificate_files())
        self.reconciler.rules = rules_of(config)
        self.firewall.firewall = firewall
