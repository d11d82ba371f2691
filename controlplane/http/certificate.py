"""The certificate that the API is served with, which another can take the place of at any time.

Connections that are open keep theirs; handshakes that begin have the newest.
"""

import hashlib
import ssl
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from controlplane.domain.errors import ConfigError
from controlplane.settings.model import Config
from tiltyard.runtime.settings.mistakes import Mistake


@dataclass(frozen=True, slots=True)
class Certificate:
    """A chain and its key, ready for handshakes; one with the same chain is the same."""

    context: ssl.SSLContext = field(compare=False)
    digest: str

    @classmethod
    def of(cls, config: Config) -> Self | None:
        """Load that of the settings; None without one. Blocks.

        Raises:
            ConfigError: It cannot be read, or does not belong to the key.
        """
        if not config.tls_certificate:
            return None
        path = Path(config.tls_certificate)
        try:
            # First: one that comes in between is another at the next look.
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
        except OSError as error:
            told = f"cannot read {path}: {error.strerror}"
            raise ConfigError(Mistake(("tls_certificate",), told)) from None
        context = config.tls_context()
        return None if context is None else cls(context, digest)


class ServedCertificate:
    """What a listener takes its handshakes' certificate from."""

    def __init__(self, first: ssl.SSLContext) -> None:
        """Serve `first` until another is given; `listener` is what the listener is opened with."""
        self.listener = first
        self._current = first
        # Called for each handshake, also when the client names no host.
        first.sni_callback = self._choose

    def use(self, context: ssl.SSLContext) -> None:
        """Serve another from now on."""
        self._current = context

    def _choose(
        self, handshake: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        handshake.context = self._current
