"""TLS handshakes that fail, in the log: asyncio tells nobody of them.

Whoever scans a port must not fill the log: of one kind a line a minute, with how many there were.
"""

import ssl
import time
from collections.abc import Callable

from tiltyard.runtime.logging.events import get_logger

log = get_logger(__name__)

INTERVAL = 60.0
"""Seconds between two lines of one kind."""

MAX_KINDS = 64
"""OpenSSL has some hundred reasons; a client must not choose how many are remembered."""


class Handshakes:
    """Counts the handshakes of one listener that failed, by OpenSSL's reason."""

    def __init__(self, where: str, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._where = where
        self._monotonic = monotonic
        self._silent: dict[str, int] = {}
        self._told_at: dict[str, float] = {}

    def watch(self, context: ssl.SSLContext) -> None:
        """Tell of the handshakes of a context."""

        def failed(error: ssl.SSLError) -> None:
            self.failed(error.reason or "UNKNOWN")

        class Watched(ssl.SSLObject):
            """What asyncio makes a handshake with."""

            def do_handshake(self) -> None:
                try:
                    super().do_handshake()
                except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                    raise
                except ssl.SSLError as error:
                    failed(error)
                    raise

        context.sslobject_class = Watched

    def failed(self, reason: str) -> None:
        """Note one, and tell of it if the last line of its kind is old."""
        kind = reason if reason in self._silent or len(self._silent) < MAX_KINDS else "other"
        now = self._monotonic()
        if now - self._told_at.get(kind, -INTERVAL) < INTERVAL:
            self._silent[kind] += 1
            return
        more = self._silent.get(kind, 0)
        self._silent[kind], self._told_at[kind] = 0, now
        log.warning("refused TLS handshakes", address=self._where, kind=kind, count=more + 1)
