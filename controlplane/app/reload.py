"""Settings that change while the control plane serves: read again, and handed to their parts.

What the file declares, such as regions and registries, is made at the start alone: whoever wants
one more while it serves makes it by the API.
"""

import logging
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

from controlplane.background.upkeep import Upkeep
from controlplane.domain.errors import ConfigError
from controlplane.fleet.fleet import Fleet
from controlplane.fleet.queue import HostQueue
from controlplane.http.certificate import Certificate, ServedCertificate
from controlplane.http.listeners import Listeners
from controlplane.registries.client import RegistryClient
from controlplane.sessions.starts import Starts
from controlplane.settings.model import Config, load_config
from controlplane.storage.tables.reports import ReportStore
from tiltyard.runtime.settings.mistakes import Mistake

RELOADABLE = frozenset(
    {
        "tls_certificate",
        "tls_key",
        "max_connections",
        "max_connections_per_address",
        "start_timeout",
        "start_rate",
        "start_burst",
        "max_waiting_starts",
        "placement_silence",
        "unreachable_after",
        "ended_retention_days",
        "audit_retention_days",
        "max_image_bytes",
        "log_level",
    }
)
"""Keys that `systemctl reload` takes in; the table of the settings says the same."""


class Settings(NamedTuple):
    """The settings, and the certificate that was in its files when they were read."""

    config: Config
    certificate: Certificate | None

    def values(self) -> Mapping[str, Any]:
        """Every key; another certificate under the same name has changed, too."""
        found = {each.name: getattr(self.config, each.name) for each in fields(Config)}
        return {**found, "tls_certificate": (self.config.tls_certificate, self.certificate)}

    def merged(self, changes: Mapping[str, Any]) -> "Settings":
        """These with some keys of others.

        Raises:
            ConfigError: They do not fit together, or TLS would begin or end.
        """
        found = dict(changes)
        kept = (self.config.tls_certificate, self.certificate)
        path, certificate = found.pop("tls_certificate", kept)
        if (certificate is None) != (self.certificate is None):
            told = "TLS does not begin or end while it serves"
            raise ConfigError(Mistake(("tls_certificate",), told))
        return Settings(replace(self.config, **found, tls_certificate=path), certificate)


def load_settings(path: Path) -> Settings:
    """Read the settings and the certificate. Blocks.

    Raises:
        ConfigError: They cannot be used.
    """
    config = load_config(path)
    return Settings(config, Certificate.of(config))


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts that take settings while they serve; `certificate` is None without TLS."""

    fleet: Fleet
    queue: HostQueue
    starts: Starts
    upkeep: Upkeep
    reports: ReportStore
    registry: RegistryClient
    listeners: Listeners
    certificate: ServedCertificate | None

    def take(self, settings: Settings) -> None:
        """Go by these from now on."""
        config = settings.config
        logging.getLogger().setLevel(config.log_level.upper())
        self.fleet.placement_silence = config.placement_silence
        self.fleet.unreachable_after = config.unreachable_after
        self.queue.max_waiting = config.max_waiting_starts
        self.starts.start_timeout = config.start_timeout
        self.starts.rate.rate, self.starts.rate.burst = config.start_rate, config.start_burst
        self.upkeep.keep(config)
        self.reports.keep_ended(timedelta(days=config.ended_retention_days))
        self.registry.max_image_bytes = config.max_image_bytes
        self.listeners.bound(config)
        if self.certificate is not None and settings.certificate is not None:
            self.certificate.use(settings.certificate.context)
