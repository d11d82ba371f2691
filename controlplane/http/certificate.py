"""The API's TLS certificate, reloaded when its files change."""

import ssl
from pathlib import Path

from controlplane.settings.model import Config
from tiltyard.runtime.atomic_file import Signature, signature
from tiltyard.runtime.clock import Clock
from tiltyard.runtime.logging.events import get_logger
from tiltyard.runtime.settings import SettingsError
from tiltyard.runtime.tasks import Threads

log = get_logger(__name__)

LOOK_SECONDS = 10.0  # Between two checks of the files


class ServedCertificate:
    """The current certificate of a listener.

    The last valid one stays in use: while certificate and key are being replaced, they do not
    match.
    """

    def __init__(self, config: Config, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._files = Path(config.tls_certificate), Path(config.tls_key)
        self._context: ssl.SSLContext | None = None
        self._signature: Signature = ()
        self._problem = ""
        self._threads = Threads(1, "api-certificate")

    async def open(self) -> ssl.SSLContext | None:
        """Load the certificate and return the listener's TLS context; None without TLS."""
        if self._config.tls_certificate:
            await self._threads.run(self._load)
        listener = self._context
        if listener is not None:
            # Called for each handshake, even without a server name.
            listener.sni_callback = self._choose
        return listener

    async def run(self) -> None:
        """Check the files periodically until cancelled."""
        while True:
            await self._clock.sleep(LOOK_SECONDS)
            await self.look()

    async def look(self) -> None:
        """Load the certificate if its files have changed."""
        if self._context is None:
            return
        try:
            await self._threads.run(self._load)
        except SettingsError as error:
            if str(error) != self._problem:
                self._problem = str(error)
                log.warning("cannot use the new certificate of the API", error=self._problem)
        else:
            self._problem = ""

    async def close(self) -> None:
        """Stop the thread after its current read."""
        await self._threads.close()

    def _load(self) -> None:
        # First, so that files replaced meanwhile count as changed next time.
        found = signature(*self._files)
        if not found or found != self._signature:
            loading_again = self._context is not None
            self._context = self._config.tls_context()
            self._signature = found
            if loading_again:
                log.info("the API has a new certificate")

    def _choose(
        self, handshake: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        if self._context is not None:
            handshake.context = self._context
